// Coroutines on Boost.Asio. Every role runs one event loop on one thread; what blocks (disk, database, warden) goes to a pool
// and comes back to the loop. So state that belongs to the loop needs no lock.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace space {
namespace asio = boost::asio;

// A coroutine that ends with a value or an Error. It never throws: exceptions are turned into values where libraries are called.
template <class T = void>
using Task = asio::awaitable<Result<T>>;

// Threads for work that blocks. `co_await pool.run([&] { return blocking(); })` resumes on the caller's own executor.
class BlockingPool {
 public:
  explicit BlockingPool(std::size_t threads) : pool_(threads) {}
  template <class F>
  asio::awaitable<std::invoke_result_t<F>> run(F work) {
    co_return co_await asio::co_spawn(
        pool_, [](F call) -> asio::awaitable<std::invoke_result_t<F>> { co_return call(); }(std::move(work)), asio::use_awaitable);
  }
  void stop() { pool_.stop(); }
  void join() { pool_.join(); }

 private:
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
