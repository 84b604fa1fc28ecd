// Coroutines on Boost.Asio. Every role runs one event loop on one thread; what blocks (disk, database, warden) goes to a pool
// and comes back to the loop. So state that belongs to the loop needs no lock.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace space {
namespace asio = boost::asio;

// A coroutine that ends with a value or an Error. It never throws: exceptions are turned into values where libraries are called.
template <class T = void>
using Task = asio::awaitable<Result<T>>;

// Asio's own operations with their error as a value: auto [error, n] = co_await socket.async_read_some(buffer, kAsTuple).
inline constexpr auto kAsTuple = asio::as_tuple(asio::use_awaitable);

// Threads for work that blocks. `co_await pool.run([&] { return blocking(); })` resumes on the caller's own executor. Work that has
// been handed over is done, and the caller waits for it, also when it is cancelled meanwhile: so `work` may refer to the caller's
// own variables. (co_spawn on the pool would be shorter; cancelled before a thread took it up, it ends the program: Boost 1.81.)
class BlockingPool {
 public:
  explicit BlockingPool(std::size_t threads) : pool_(threads) {}
  template <class F>
  asio::awaitable<std::invoke_result_t<F>> run(F work) {
    auto call = std::make_shared<Call<F>>(std::move(work));
    co_await visit(call);
    if (call->error) std::rethrow_exception(call->error);
    co_return std::move(*call->result);
  }
  void stop() { pool_.stop(); }
  void join() { pool_.join(); }

 private:
  template <class F>
  struct Call {
    explicit Call(F f) : work(std::move(f)) {}
    F work;
    std::optional<std::invoke_result_t<F>> result;
    std::exception_ptr error;
  };

  template <class C>
  asio::awaitable<void> visit(std::shared_ptr<C> call) {
    auto begin = [this, call = std::move(call)](auto handler) {
      auto home = asio::make_work_guard(asio::get_associated_executor(handler));
      asio::post(pool_, [call, home = std::move(home), handler = std::move(handler)]() mutable {
        try {
          call->result.emplace(call->work());
        } catch (...) {
          call->error = std::current_exception();
        }
        call.reset();  // the caller's copy is the last: what `work` holds is destroyed on the caller's side
        asio::post(home.get_executor(), std::move(handler));
      });
    };
    return asio::async_initiate<const asio::use_awaitable_t<>, void()>(std::move(begin), asio::use_awaitable);
  }

  asio::thread_pool pool_;
};

// Waits; ends early, without an error, when the coroutine is cancelled.
asio::awaitable<void> sleep_for(std::chrono::milliseconds time);

// Starts a coroutine that nobody waits for. An exception out of it is our own mistake: logged, and the process aborts.
void spawn(asio::any_io_executor executor, asio::awaitable<void> task);

// A condition that coroutines of one loop wait for: notify_all wakes every waiter. Not for other threads.
class Signal {
 public:
  explicit Signal(asio::any_io_executor executor) : timer_(std::move(executor), asio::steady_timer::time_point::max()) {}
  void notify_all() { timer_.cancel(); }
  // True when notified, false when `time` passed first. Waiters test their condition in a loop.
  asio::awaitable<bool> wait_for(std::chrono::milliseconds time);
  asio::awaitable<void> wait();

 private:
  asio::steady_timer timer_;
};

}  // namespace space
