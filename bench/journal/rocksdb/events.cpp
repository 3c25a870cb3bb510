// Appends events to RocksDB and reads them back, as a program would that keeps a
// log in it: a key of 12 bytes in order of time, the event as the value. A line
// of the standard input is a command, a line of JSON its answer:
//
//   open DIR          opens a new store there
//   append N BATCH    appends N events of 58 bytes, BATCH at once, not synced
//   settle            writes memtables to tables and waits for compactions
//   read N TIMES      reads the first N events, TIMES over
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <sys/resource.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

namespace {

constexpr size_t kEventBytes = 58;

int64_t wallNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t cpuNow() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000LL +
         (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000LL;
}

void putKey(char* key, uint64_t micros, uint32_t count) {
  for (int i = 7; i >= 0; i--, micros >>= 8) key[i] = char(micros);
  for (int i = 11; i >= 8; i--, count >>= 8) key[i] = char(count);
}

struct Log {
  std::unique_ptr<rocksdb::DB> db;
  uint64_t next = 0;

  rocksdb::Status open(const std::string& dir) {
    rocksdb::Options o;
    o.create_if_missing = true;
    o.write_buffer_size = 64 << 20;
    rocksdb::BlockBasedTableOptions t;
    t.block_cache = rocksdb::NewLRUCache(256 << 20);
    t.block_size = 16 << 10;
    t.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(t));
    rocksdb::DB* raw = nullptr;
    auto s = rocksdb::DB::Open(o, dir, &raw);
    db.reset(raw);
    return s;
  }

  rocksdb::Status append(int64_t n, int64_t batch) {
    char key[12], value[kEventBytes];
    for (size_t i = 0; i < kEventBytes; i++) value[i] = char('a' + i % 26);
    rocksdb::WriteOptions w;
    while (n > 0) {
      rocksdb::WriteBatch b;
      for (int64_t i = 0; i < batch && n > 0; i++, n--, next++) {
        putKey(key, 1700000000000000ULL + next, 0);
        for (int k = 0; k < 8; k++) value[k] = char(next >> (8 * k));
        b.Put(rocksdb::Slice(key, sizeof key), rocksdb::Slice(value, sizeof value));
      }
      auto s = db->Write(w, &b);
      if (!s.ok()) return s;
    }
    return rocksdb::Status::OK();
  }

  rocksdb::Status read(int64_t n, int64_t times, int64_t& bytes) {
    for (int64_t t = 0; t < times; t++) {
      std::unique_ptr<rocksdb::Iterator> it(db->NewIterator(rocksdb::ReadOptions()));
      int64_t left = n;
      for (it->SeekToFirst(); it->Valid() && left > 0; it->Next(), left--)
        bytes += int64_t(it->key().size() + it->value().size()) + it->value()[0] % 2;
      if (!it->status().ok()) return it->status();
      if (left > 0) return rocksdb::Status::NotFound("fewer events than asked for");
    }
    return rocksdb::Status::OK();
  }
};

}  // namespace

int main() {
  Log log;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string what, dir;
    int64_t n = 0, m = 0, bytes = 0;
    in >> what;
    int64_t wall = wallNow(), cpu = cpuNow();
    rocksdb::Status s;
    if (what == "open" && in >> dir) {
      s = log.open(dir);
    } else if (what == "append" && in >> n >> m) {
      s = log.append(n, m);
    } else if (what == "read" && in >> n >> m) {
      s = log.read(n, m, bytes);
    } else if (what == "settle") {
      s = log.db->Flush(rocksdb::FlushOptions());
      if (s.ok()) s = log.db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr);
    } else {
      s = rocksdb::Status::InvalidArgument("what is that");
    }
    if (!s.ok()) {
      std::cout << "{\"error\":\"" << s.ToString() << "\"}" << std::endl;
      continue;
    }
    std::cout << "{\"ns\":" << wallNow() - wall << ",\"cpu\":" << cpuNow() - cpu
              << ",\"bytes\":" << bytes << "}" << std::endl;
  }
}
