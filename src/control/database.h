// The threads behind the Store: one writer that puts every change waiting for it into one transaction (group commit), and
// readers on connections of their own that never wait for the writer.
#pragma once

#include <atomic>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/async.h"
#include "base/fd.h"
#include "control/session.h"

namespace space::control {

class Database {
 public:
  static Result<std::unique_ptr<Database>> open(const std::filesystem::path& path);
  ~Database();  // lets queued changes end

  // One change, in a transaction that others may share; it alone is undone when it gives an error. Durable when it returns.
  template <class T>
  Task<T> write(std::function<Result<T>(Session&)> change) {
    return asio::async_initiate<const asio::use_awaitable_t<>, void(Result<T>)>(
        [this](auto handler, std::function<Result<T>(Session&)> work) {
          enqueue(std::make_unique<Change<T, decltype(handler)>>(std::move(handler), std::move(work)));
        },
        asio::use_awaitable, std::move(change));
  }
  // A change that nobody waits for: written with the next one, or after kLazy.
  void write_later(std::function<Result<>(Session&)> change);

  template <class T>
  Task<T> read(std::function<Result<T>(Session&)> query) {
    auto work = [this, query = std::move(query)]() -> Result<T> {
      Result<T> result = fail(ErrorKind::internal, "store_failed", "the query did not run");
      with_reader([&](Session& session) { result = query(session); }, [&](Error error) { result = fail(std::move(error)); });
      return result;
    };
    co_return co_await readers_.run(std::move(work));
  }

  // Copies the log back into the file where readers allow it; keeps the writer from doing so in the middle of a request.
  Task<> checkpoint();

  std::atomic<std::uint64_t> transactions{0}, changes{0}, failures{0};

 private:
  struct Job {
    virtual ~Job() = default;
    virtual bool run(Session& session) = 0;  // false: undo it
    virtual void fail_with(Error error) = 0;
    virtual void complete() = 0;
  };
  template <class T, class Handler>
  struct Change : Job {
    Change(Handler h, std::function<Result<T>(Session&)> w)
        : handler(std::move(h)), executor(asio::get_associated_executor(handler)), guard(executor), work(std::move(w)) {}
    bool run(Session& session) override {
      result = work(session);
      return result.has_value();
    }
    void fail_with(Error error) override { result = fail(std::move(error)); }
    void complete() override {
      asio::post(executor, [h = std::move(handler), r = std::move(result)]() mutable { std::move(h)(std::move(r)); });
    }
    Handler handler;
    asio::associated_executor_t<Handler> executor;
    asio::executor_work_guard<asio::associated_executor_t<Handler>> guard;  // the loop stays while a change is under way
    std::function<Result<T>(Session&)> work;
    Result<T> result;
  };
  struct Later;

  Database() = default;
  void enqueue(std::unique_ptr<Job> job);
  void writer_loop();
  void run_batch(std::vector<std::unique_ptr<Job>>& batch);
  void with_reader(const std::function<void(Session&)>& use, const std::function<void(Error)>& failed);

  Fd lock_;
  std::unique_ptr<Session> writer_;
  std::mutex mutex_;  // of the queues
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Job>> queue_, later_;
  bool stopping_ = false;
  std::thread thread_;

  BlockingPool readers_{2};
  std::mutex readers_mutex_;
  std::vector<std::unique_ptr<Session>> idle_readers_;
  std::unique_ptr<Session> checkpointer_;
};

// The failure of a library call as an Error: full disks and damaged files have kinds of their own.
Error store_error(const std::exception& exception);

}  // namespace space::control
