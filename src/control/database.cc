#include "control/database.h"

#include <fcntl.h>
#include <soci/sqlite3/soci-sqlite3.h>
#include <sys/file.h>

#include <chrono>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "control/schema.h"

namespace space::control {
namespace {

constexpr std::size_t kLargestBatch = 256;
constexpr std::chrono::milliseconds kLazy{100};

std::unique_ptr<soci::session> connect(const std::filesystem::path& path) {
  auto sql = std::make_unique<soci::session>(soci::sqlite3, "dbname=" + path.string() + " timeout=10 shared_cache=false");
  *sql << "PRAGMA journal_mode=WAL";
  *sql << "PRAGMA synchronous=FULL";
  *sql << "PRAGMA temp_store=MEMORY";
  *sql << "PRAGMA cache_size=-8192";
  return sql;
}

}  // namespace

Error store_error(const std::exception& exception) {
  const auto* sqlite = dynamic_cast<const soci::sqlite3_soci_error*>(&exception);
  const int code = sqlite ? sqlite->result() & 0xff : 0;
  // SQLITE_FULL 13, SQLITE_CORRUPT 11, SQLITE_NOTADB 26 (sqlite3.h)
  if (code == 13)
    return {ErrorKind::insufficient_storage, "store_full", "the database's disk is full", "free space on the data folder's disk"};
  if (code == 11 || code == 26)
    return {ErrorKind::corrupt, "store_corrupt", "the database is damaged", "restore control/space.db from a backup"};
  // what() of SOCI holds the bound values, which may be secrets; its bare message does not.
  const auto* soci_error = dynamic_cast<const soci::soci_error*>(&exception);
  return {ErrorKind::internal, "store_failed",
          "the database refused: " + (soci_error ? soci_error->get_error_message() : std::string(exception.what())),
          "see the server's log"};
}

// A change that nobody waits for; its failure is a line in the log.
struct Database::Later : Job {
  explicit Later(std::function<Result<>(Session&)> w) : work(std::move(w)) {}
  bool run(Session& session) override {
    result = work(session);
    return result.has_value();
  }
  void fail_with(Error error) override { result = fail(std::move(error)); }
  void complete() override {
    if (!result) log::warn("store.later_failed", {{"error", result.error()}});
  }
  std::function<Result<>(Session&)> work;
  Result<> result;
};

Result<std::unique_ptr<Database>> Database::open(const std::filesystem::path& path) {
  TRY_VOID(make_directories(path.parent_path(), 0700));
  TRY(Fd lock, open_file(path.string() + ".lock", O_RDWR | O_CREAT, 0600));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(ErrorKind::conflict, "database_in_use", "another server uses " + path.string(), "stop it, or choose another data folder");
  { TRY(Fd file, open_file(path, O_RDWR | O_CREAT, 0600)); }  // so that SQLite does not choose the mode
  std::unique_ptr<Database> database(new Database);
  database->lock_ = std::move(lock);
  try {
    auto sql = connect(path);
    *sql << "PRAGMA wal_autocheckpoint=20000";  // the checkpointer comes long before
    database->writer_ = std::make_unique<Session>(std::move(sql));
    TRY_VOID(migrate(*database->writer_));
    for (int i = 0; i < 2; ++i) database->idle_readers_.push_back(std::make_unique<Session>(connect(path)));
    database->checkpointer_ = std::make_unique<Session>(connect(path));
  } catch (const std::exception& e) {
    return fail(store_error(e));
  }
  database->thread_ = std::thread([raw = database.get()] { raw->writer_loop(); });
  return database;
}

Database::~Database() {
  {
    std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  readers_.join();
}

void Database::enqueue(std::unique_ptr<Job> job) {
  {
    std::lock_guard guard(mutex_);
    queue_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Database::write_later(std::function<Result<>(Session&)> change) {
  bool first = false;
  {
    std::lock_guard guard(mutex_);
    first = later_.empty();
    later_.push_back(std::make_unique<Later>(std::move(change)));
  }
  if (first) wake_.notify_one();
}

void Database::writer_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || !queue_.empty() || !later_.empty(); });
    if (queue_.empty() && !stopping_) wake_.wait_for(lock, kLazy, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty() && later_.empty()) return;  // stopping, and nothing left
    std::vector<std::unique_ptr<Job>> batch;
    for (auto* queue : {&later_, &queue_})  // what was put off happened before what waits now
      while (!queue->empty() && batch.size() < kLargestBatch) {
        batch.push_back(std::move(queue->front()));
        queue->pop_front();
      }
    lock.unlock();
    run_batch(batch);
    for (auto& job : batch) job->complete();
    batch.clear();
    lock.lock();
  }
}

void Database::run_batch(std::vector<std::unique_ptr<Job>>& batch) {
  const bool shared = batch.size() > 1;
  Session& session = *writer_;
  std::optional<Error> broken;  // of the whole transaction
  try {
    session.exec("BEGIN IMMEDIATE");
    bool alone_failed = false;
    for (auto& job : batch) {
      if (shared) session.exec("SAVEPOINT one");
      bool keep = false;
      try {
        keep = job->run(session);
      } catch (const std::exception& e) {
        job->fail_with(store_error(e));
        failures.fetch_add(1, std::memory_order_relaxed);
        log::error("store.change_failed", {{"error", store_error(e)}});
      }
      if (shared) {
        if (!keep) session.exec("ROLLBACK TO one");
        session.exec("RELEASE one");
      } else {
        alone_failed = !keep;
      }
    }
    session.exec(alone_failed ? "ROLLBACK" : "COMMIT");
    transactions.fetch_add(1, std::memory_order_relaxed);
    changes.fetch_add(batch.size(), std::memory_order_relaxed);
  } catch (const std::exception& e) {
    broken = store_error(e);
    log::error("store.commit_failed", {{"error", *broken}});
    failures.fetch_add(1, std::memory_order_relaxed);
  }
  if (!broken) return;
  try {
    session.exec("ROLLBACK");
  } catch (const std::exception&) {  // SQLite ends the transaction itself after some failures
  }
  for (auto& job : batch) job->fail_with(*broken);
}

void Database::with_reader(const std::function<void(Session&)>& use, const std::function<void(Error)>& failed) {
  std::unique_ptr<Session> session;
  {
    std::lock_guard guard(readers_mutex_);  // as many connections as threads: one is always there
    session = std::move(idle_readers_.back());
    idle_readers_.pop_back();
  }
  try {
    use(*session);
  } catch (const std::exception& e) {
    log::error("store.query_failed", {{"error", store_error(e)}});
    failed(store_error(e));
  }
  std::lock_guard guard(readers_mutex_);
  idle_readers_.push_back(std::move(session));
}

Task<> Database::checkpoint() {
  auto work = [this]() -> Result<> {
    try {
      checkpointer_->query<long long, long long, long long>("PRAGMA wal_checkpoint(PASSIVE)");
      return {};
    } catch (const std::exception& e) {
      return fail(store_error(e));
    }
  };
  co_return co_await readers_.run(std::move(work));
}

}  // namespace space::control
