//go:build cgo

package peers

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"

	_ "github.com/mattn/go-sqlite3" // the driver "sqlite3"
)

type sqlite struct {
	db                *sql.DB
	insert, get, scan *sql.Stmt
}

// OpenSQLite opens SQLite with a write-ahead log: synchronous=FULL for Synced,
// NORMAL, which syncs at checkpoints only, for Buffered. One connection serves
// all, as SQLite has one writer and the benchmarks read from one goroutine.
func OpenSQLite(dir string, level Level) (Store, error) {
	synchronous := "FULL"
	if level == Buffered {
		synchronous = "NORMAL"
	}
	db, err := sql.Open("sqlite3", fmt.Sprintf("file:%s?_journal_mode=WAL&_synchronous=%s&_txlock=immediate&_cache_size=-%d",
		filepath.Join(dir, "rows.sqlite"), synchronous, CacheBytes>>10))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s := &sqlite{db: db}
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL, message TEXT NOT NULL)"); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&s.insert, "INSERT INTO rows (id, timestamp, message) VALUES (?, ?, ?)"},
		{&s.get, "SELECT id, timestamp, message FROM rows WHERE id = ?"},
		{&s.scan, "SELECT id, timestamp, message FROM rows WHERE id >= ? ORDER BY id LIMIT ?"},
	} {
		if *p.to, err = db.Prepare(p.text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sqlite) Insert(rows []Row) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
	insert := tx.Stmt(s.insert)
	for i := range rows {
		if _, err := insert.Exec(rows[i].ID, int64(rows[i].Timestamp), rows[i].Message); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *sqlite) Put(row Row) error {
	_, err := s.insert.Exec(row.ID, int64(row.Timestamp), row.Message)
	return err
}

func (s *sqlite) Get(ids []int64) (n int, err error) {
	if len(ids) == 1 {
		var r Row
		err := s.get.QueryRow(ids[0]).Scan(&r.ID, &r.Timestamp, &r.Message)
		return len(r.Message), err
	}
	tx, err := s.db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // it only read
	get := tx.Stmt(s.get)
	var r Row
	for _, id := range ids {
		if err := get.QueryRow(id).Scan(&r.ID, &r.Timestamp, &r.Message); err != nil {
			return n, err
		}
		n += len(r.Message)
	}
	return n, nil
}

func (s *sqlite) Scan(id int64, limit int) (count, n int, err error) {
	rows, err := s.scan.Query(id, limit)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	var r Row
	for rows.Next() {
		if err := rows.Scan(&r.ID, &r.Timestamp, &r.Message); err != nil {
			return count, n, err
		}
		n += len(r.Message)
		count++
	}
	return count, n, rows.Err()
}

func (s *sqlite) Settle() error {
	_, err := s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

func (s *sqlite) Close() error { return s.db.Close() }
