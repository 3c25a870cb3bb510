// The RocksDB peer of Osier's benchmarks. It reads a command a line and answers
// each with a line of JSON: {"ops":N,"rows":N,"ns":N,"cpu":N}, or {"error":"..."}.
//
//   open "DIR" CACHE_BYTES LEVEL           LEVEL 0: synced, 1: buffered
//   insert MIN MAX ID BATCH TXS            TXS transactions of BATCH rows
//   commit MIN MAX ID WRITERS EACH         a row a transaction, from threads
//   get MIN MAX N K READS SEED             READS reads of K random rows
//   scan MIN MAX N K READS SEED            READS scans of K rows
//   settle                                 flush and compact
//
// A row is 16 bytes of numbers and MIN to MAX letters; its key is its id.
// Everything a measurement needs is made before its clock starts.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <time.h>

#include <cstdint>
#include <iomanip>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

const std::string& Letters() {
  static const std::string letters = [] {
    std::string s(1 << 20, 0);
    for (size_t i = 0; i < s.size(); i++) s[i] = static_cast<char>('a' + Mix(i) % 26);
    return s;
  }();
  return letters;
}

struct Shape {
  int64_t min, max;
  size_t Length(int64_t id) const { return min + Mix(id) % (max - min + 1); }
};

std::string Key(int64_t id) {
  std::string k(8, 0);
  for (int i = 0; i < 8; i++) k[i] = static_cast<char>(static_cast<uint64_t>(id) >> (56 - 8 * i));
  return k;
}

std::string Value(const Shape& s, int64_t id) {
  std::string v;
  const size_t n = s.Length(id);
  v.reserve(16 + n);
  for (uint64_t x : {static_cast<uint64_t>(id), 1700000000000000 + static_cast<uint64_t>(id)})
    for (int i = 0; i < 8; i++) v.push_back(static_cast<char>(x >> (8 * i)));
  v.append(Letters(), Mix(id + (1ull << 40)) % (Letters().size() - n), n);
  return v;
}

void Check(const rocksdb::Status& s) {
  if (!s.ok()) throw std::runtime_error(s.ToString());
}

// Time is what a measurement took, and what it used of the processors.
struct Time {
  int64_t ns, cpu;
};

class Clock {
 public:
  Time Stop() const { return {Now(CLOCK_MONOTONIC) - wall_, Now(CLOCK_PROCESS_CPUTIME_ID) - cpu_}; }

 private:
  static int64_t Now(clockid_t id) {
    timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
  }
  int64_t cpu_ = Now(CLOCK_PROCESS_CPUTIME_ID), wall_ = Now(CLOCK_MONOTONIC);
};

class Peer {
 public:
  void Open(const std::string& dir, size_t cache, int level) {
    rocksdb::BlockBasedTableOptions t;
    t.block_cache = rocksdb::NewLRUCache(cache);
    t.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    t.block_size = 16 << 10;
    rocksdb::Options o;
    o.create_if_missing = true;
    o.write_buffer_size = 64 << 20;
    o.max_background_jobs = 2;
    o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(t));
    rocksdb::DB* db = nullptr;
    Check(rocksdb::DB::Open(o, dir, &db));
    db_.reset(db);
    write_.sync = level == 0;
  }

  Time Insert(const Shape& s, int64_t id, int64_t batch, int64_t txs) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (int64_t i = 0; i < batch * txs; i++) rows.emplace_back(Key(id + i), Value(s, id + i));
    Clock clock;
    auto row = rows.begin();
    for (int64_t t = 0; t < txs; t++) {
      rocksdb::WriteBatch b;
      for (int64_t i = 0; i < batch; i++, ++row) Check(b.Put(row->first, row->second));
      Check(db_->Write(write_, &b));
    }
    return clock.Stop();
  }

  Time Commit(const Shape& s, int64_t id, int64_t writers, int64_t each) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (int64_t i = 0; i < writers * each; i++) rows.emplace_back(Key(id + i), Value(s, id + i));
    std::vector<rocksdb::Status> status(writers);
    Clock clock;
    std::vector<std::thread> threads;
    for (int64_t w = 0; w < writers; w++)
      threads.emplace_back([&, w] {
        for (int64_t i = 0; i < each && status[w].ok(); i++) {
          const auto& row = rows[i * writers + w];
          status[w] = db_->Put(write_, row.first, row.second);
        }
      });
    for (auto& t : threads) t.join();
    const Time time = clock.Stop();
    for (const auto& st : status) Check(st);
    return time;
  }

  Time Get(const Shape& s, int64_t n, int64_t k, int64_t reads, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> keys;
    size_t want = 0, got = 0;
    for (int64_t i = 0; i < k * reads; i++) {
      const int64_t id = static_cast<int64_t>(random() % n);
      keys.push_back(Key(id));
      want += s.Length(id) + 16;
    }
    const rocksdb::ReadOptions o;
    rocksdb::ColumnFamilyHandle* cf = db_->DefaultColumnFamily();
    std::vector<rocksdb::Slice> slices(keys.begin(), keys.end());
    std::vector<rocksdb::PinnableSlice> values(k);
    std::vector<rocksdb::Status> status(k);
    Clock clock;
    for (int64_t r = 0; r < reads; r++) {
      if (k == 1)
        status[0] = db_->Get(o, cf, slices[r], &values[0]);
      else
        db_->MultiGet(o, cf, k, &slices[r * k], values.data(), status.data());
      for (int64_t i = 0; i < k; i++) {
        Check(status[i]);
        got += values[i].size();
        values[i].Reset();
      }
    }
    const Time time = clock.Stop();
    if (got != want) throw std::runtime_error("get: not what was written");
    return time;
  }

  Time Scan(int64_t n, int64_t k, int64_t reads, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> from;
    for (int64_t i = 0; i < reads; i++) from.push_back(Key(static_cast<int64_t>(random() % (n - k + 1))));
    size_t bytes = 0;
    Clock clock;
    for (const auto& key : from) {
      std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
      int64_t rows = 0;
      for (it->Seek(key); rows < k && it->Valid(); it->Next(), rows++) bytes += it->value().size();
      Check(it->status());
      if (rows != k) throw std::runtime_error("scan: rows are missing");
    }
    const Time time = clock.Stop();
    if (bytes == 0) throw std::runtime_error("scan: nothing read");
    return time;
  }

  void Settle() {
    Check(db_->Flush(rocksdb::FlushOptions()));
    Check(db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteOptions write_;
};

struct Answer {
  int64_t ops, rows;
  Time time;
};

Answer Run(Peer& peer, std::istringstream& in) {
  std::string command;
  in >> command;
  if (command == "open") {
    std::string dir;
    size_t cache = 0;
    int level = 0;
    in >> std::quoted(dir) >> cache >> level;
    peer.Open(dir, cache, level);
    return {0, 0, {0, 0}};
  }
  if (command == "settle") {
    peer.Settle();
    return {0, 0, {0, 0}};
  }
  Shape s{};
  int64_t a = 0, b = 0, c = 0;
  uint64_t seed = 0;
  in >> s.min >> s.max >> a >> b >> c;
  if (!in || s.min < 0 || s.max < s.min || b < 1 || c < 0) throw std::runtime_error("bad arguments of " + command);
  if (command == "insert") return {c, b * c, peer.Insert(s, a, b, c)};
  if (command == "commit") return {b * c, b * c, peer.Commit(s, a, b, c)};
  in >> seed;
  if (command == "get") return {c, b * c, peer.Get(s, a, b, c, seed)};
  if (command == "scan") return {c, b * c, peer.Scan(a, b, c, seed)};
  throw std::runtime_error("unknown command " + command);
}

}  // namespace

int main() {
  Peer peer;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::istringstream in(line);
      const Answer a = Run(peer, in);
      std::cout << "{\"ops\":" << a.ops << ",\"rows\":" << a.rows << ",\"ns\":" << a.time.ns << ",\"cpu\":" << a.time.cpu
                << "}" << std::endl;
    } catch (const std::exception& e) {
      std::ostringstream text;
      text << std::quoted(e.what());
      std::cout << "{\"error\":" << text.str() << "}" << std::endl;
    }
  }
}
