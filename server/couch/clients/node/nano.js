// nano against the door: node nano.js URL
'use strict';
const assert = require('node:assert/strict');
const nano = require('nano')(process.argv[2]);

(async () => {
  await nano.db.create('nano');
  assert.ok((await nano.db.list()).includes('nano'));
  const db = nano.use('nano');
  const first = await db.insert({ happy: true }, 'rabbit');
  assert.ok(first.ok);
  await assert.rejects(db.insert({}, 'rabbit'), { statusCode: 409 });
  assert.equal((await db.get('rabbit')).happy, true);
  assert.equal((await db.head('rabbit')).etag, `"${first.rev}"`);
  const bulk = await db.bulk({ docs: [{ _id: 'a' }, { _id: 'b' }] });
  assert.equal(bulk.length, 2);
  const list = await db.list({ include_docs: true, startkey: 'b' });
  assert.deepEqual(list.rows.map((r) => r.id), ['b', 'rabbit']);
  assert.equal((await db.fetch({ keys: ['a', 'none'] })).rows[1].error, 'not_found');
  await db.attachment.insert('a', 'x.png', Buffer.from('bytes'), 'image/png', { rev: bulk[0].rev });
  assert.equal((await db.attachment.get('a', 'x.png')).toString(), 'bytes');
  await db.multipart.insert({ v: 1 }, [{ name: 'y.png', data: Buffer.from('more'), content_type: 'image/png' }], 'multi');
  assert.equal((await db.attachment.get('multi', 'y.png')).toString(), 'more');

  const seen = await new Promise((resolve, reject) => {
    const ids = [];
    const batches = db.changesReader.get({ since: '0', batchSize: 10, timeout: 500 });
    batches.on('change', (c) => ids.push(c.id)).on('end', () => resolve(ids)).on('error', reject);
  });
  assert.deepEqual(seen.sort(), ['a', 'b', 'multi', 'rabbit']);

  const live = new Promise((resolve, reject) => {
    db.changesReader.start({ since: 'now' }).on('change', (c) => { db.changesReader.stop(); resolve(c); }).on('error', reject);
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  await db.insert({}, 'late');
  assert.equal((await live).id, 'late');

  const index = await db.createIndex({ index: { fields: ['v'] }, ddoc: 'by', name: 'v' });
  assert.equal(index.result, 'created');
  const found = await db.find({ selector: { v: { $gt: 0 } }, sort: ['v'], fields: ['_id', 'v'] });
  assert.deepEqual(found.docs, [{ _id: 'multi', v: 1 }]);

  await db.destroy('rabbit', first.rev);
  assert.equal((await nano.session()).userCtx.name, 'admin');
  await nano.db.destroy('nano');
  process.exit(0);
})().catch((err) => {
  console.error(err);
  process.exit(1);
});
