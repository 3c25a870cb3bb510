// A replica of the killing test: node replica.js URL NAME DOCUMENTS. It writes its
// documents while it syncs live, and then obeys lines on its standard input:
// "sync" replicates both ways until that worked, "content" prints what it holds.
'use strict';
const crypto = require('node:crypto');
const readline = require('node:readline');
const PouchDB = require('pouchdb');
PouchDB.plugin(require('pouchdb-adapter-memory'));

const [url, name, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
// A refused connection can escape PouchDB's replicator as a rejection that nobody
// handles, which would end the process. The server is meant to be away at times.
process.on('unhandledRejection', (err) => console.error(name, 'unhandled:', String(err)));

const local = new PouchDB(name, { adapter: 'memory' });
const remote = new PouchDB(url, { skip_setup: true }); // the test has made it
const options = { live: true, retry: true, batch_size: 50, back_off_function: () => 100 };

// A third of the ids are the other replica's too: both edits are kept.
async function write() {
  for (let i = 0; i < count; i += 50) {
    const docs = [];
    for (let k = i; k < Math.min(i + 50, count); k++) {
      const doc = { _id: k % 3 === 0 ? `both-${k}` : `${name}-${k}`, by: name, k };
      if (k % 40 === 0) {
        doc._attachments = { 'x.bin': { content_type: 'image/png', data: crypto.createHash('sha256').update(name + k).digest('base64') } };
      }
      docs.push(doc);
    }
    await local.bulkDocs(docs);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function sync() {
  for (;;) {
    try {
      const r = await local.sync(remote, { batch_size: 200 });
      if (r.push.doc_write_failures + r.pull.doc_write_failures === 0) return;
    } catch (err) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

// The digest of all documents, their conflicts and attachments.
async function content(db) {
  const h = crypto.createHash('sha256');
  const all = await db.allDocs({ include_docs: true, conflicts: true, attachments: true });
  for (const { doc } of all.rows) {
    const atts = Object.entries(doc._attachments || {}).map(([n, a]) => [n, a.content_type, a.data]);
    h.update(JSON.stringify([doc._id, doc._rev, doc.by, doc.k, (doc._conflicts || []).sort(), atts]));
  }
  return `${all.rows.length} ${h.digest('hex')}`;
}

(async () => {
  const live = count > 0 ? local.sync(remote, options) : null;
  if (live) live.on('error', (err) => console.error(name, err));
  await write();
  console.log('written');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (live) live.cancel();
    if (line === 'sync') await sync();
    console.log(line === 'content' ? await content(count > 0 ? local : remote) : line);
  }
  process.exit(0);
})().catch((err) => {
  console.error(err);
  process.exit(1);
});
