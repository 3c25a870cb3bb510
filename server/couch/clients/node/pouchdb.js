// PouchDB against the door: node pouchdb.js URL
'use strict';
const assert = require('node:assert/strict');
const PouchDB = require('pouchdb');
PouchDB.plugin(require('pouchdb-adapter-memory'));

const url = process.argv[2];
const local = (name) => new PouchDB(name, { adapter: 'memory' });

// Every document of a database with its revisions, conflicts and attachments.
async function content(db) {
  const all = await db.allDocs({ include_docs: true, conflicts: true });
  const out = {};
  for (const row of all.rows) {
    for (const a of Object.values(row.doc._attachments || {})) {
      delete a.revpos; // PouchDB counts it otherwise
    }
    out[row.id] = row.doc;
  }
  return out;
}

async function documents(remote) {
  const { rev } = await remote.put({ _id: 'a', text: 'grüße 😀', n: [1.5, 2 ** 40, -0.25, null] });
  assert.deepEqual((await remote.get('a')).n, [1.5, 2 ** 40, -0.25, null]);
  await assert.rejects(remote.put({ _id: 'a' }), { status: 409 });
  const next = await remote.put({ _id: 'a', _rev: rev, v: 2 });
  assert.equal((await remote.get('a', { rev })).text, 'grüße 😀');
  const info = await remote.get('a', { revs_info: true });
  assert.deepEqual(info._revs_info.map((r) => r.status), ['available', 'available']);
  await remote.remove('a', next.rev);
  await assert.rejects(remote.get('a'), { status: 404, reason: 'deleted' });
  const bulk = await remote.bulkDocs([{ _id: 'b' }, { _id: 'a', again: true }, { x: 1 }]);
  assert.ok(bulk.every((r) => r.ok), JSON.stringify(bulk));
  const got = await remote.bulkGet({ docs: [{ id: 'b' }, { id: 'none' }] });
  assert.equal(got.results[0].docs[0].ok._id, 'b');
  assert.equal(got.results[1].docs[0].error.error, 'not_found');
  const rows = (await remote.allDocs({ keys: ['b', 'none', 'a'] })).rows;
  assert.deepEqual(rows.map((r) => r.error || r.id), ['b', 'not_found', 'a']);
}

async function attachments(remote) {
  const bytes = Buffer.from([0, 1, 2, 253, 254, 255]);
  let doc = await remote.putAttachment('att', 'x.bin', bytes, 'image/png');
  doc = await remote.putAttachment('att', 'y.txt', doc.rev, Buffer.from('text'), 'text/plain');
  assert.equal(Buffer.compare(await remote.getAttachment('att', 'x.bin'), bytes), 0);
  const whole = await remote.get('att', { attachments: true, binary: true });
  assert.equal(whole._attachments['y.txt'].data.toString(), 'text');
  await remote.put({ _id: 'att', _rev: doc.rev, _attachments: { 'x.bin': { stub: true } } });
  assert.deepEqual(Object.keys((await remote.get('att'))._attachments), ['x.bin']);
}

async function replication(remote) {
  const a = local('a' + Date.now());
  const b = local('b' + Date.now());
  await a.bulkDocs(Array.from({ length: 300 }, (_, i) => ({ _id: 'doc' + i, i })));
  await a.putAttachment('doc0', 'x', (await a.get('doc0'))._rev, Buffer.from('bytes'), 'image/png');
  let r = await a.replicate.to(remote, { batch_size: 50 });
  assert.equal(r.doc_write_failures, 0);
  await b.replicate.from(remote, { batch_size: 50 });
  for (const db of [a, b]) {
    const doc = await db.get('doc1');
    await db.put({ ...doc, by: db === a ? 'a' : 'b' });
  }
  await b.remove(await b.get('doc2'));
  await a.sync(remote);
  await b.sync(remote);
  await a.sync(remote);
  assert.deepEqual(await content(a), await content(b));
  assert.deepEqual(await content(a), await content(remote));
  assert.equal((await remote.get('doc1', { conflicts: true }))._conflicts.length, 1);
  r = await a.replicate.to(remote);
  assert.equal(r.docs_written, 0, 'a second replication writes nothing');
}

async function live(remote) {
  const c = local('c' + Date.now());
  const sync = c.sync(remote, { live: true, retry: true });
  const seen = new Promise((resolve) => {
    c.changes({ since: 'now', live: true }).on('change', (ch) => ch.id === 'live' && resolve());
  });
  await new Promise((resolve) => sync.once('paused', resolve));
  await remote.put({ _id: 'live' });
  await seen;
  sync.cancel();
}

(async () => {
  const remote = new PouchDB(url + '/pouch');
  await documents(remote);
  await attachments(remote);
  await replication(remote);
  await live(remote);
  await remote.compact();
  await remote.destroy();
  process.exit(0);
})().catch((err) => {
  console.error(err);
  process.exit(1);
});
