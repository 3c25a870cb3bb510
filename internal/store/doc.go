// Package store keeps ordered keys and values in a folder and is the only
// package that knows which storage engine does so (Pebble).
//
// It adds to the engine what a database that people trust needs from it: a
// folder that says what it is and who has it open, three stated levels of
// durability, errors instead of a process that ends, damage that is named by
// file and place, and a way to salvage what is whole from a folder that no
// longer opens. It knows nothing of documents.
//
// # Folder
//
//	osier.json   what this folder is: product, format number, creation time
//	osier.lock   held while the store is open, always empty
//	osier.owner  who holds the lock: process id, host, since when
//	osier.closed how long the manifest was when the store was closed
//	data/        the engine's files; all of them pass through Options.WrapFS
//
// osier.json and osier.owner are plain JSON and hold nothing of the user's. The
// owner has a file of its own because taking a lock truncates the lock file, and
// because closing any descriptor of a locked file drops the lock of the whole
// process.
//
// # Durability
//
// See [Durability] for what survives what. A batch is visible to readers as soon
// as [Store.Apply] returns, before it is durable: who must not show what a crash
// can take back looks no further than [Store.Synced].
//
// # Failure
//
// The first error after which the state on disk is uncertain fences the store:
// from that moment no byte under data/ changes any more, writes fail with
// [*FencedError] and reads go on. Reopening the folder is then the same as
// reopening it after a crash at that moment. guard.go has the argument.
package store
