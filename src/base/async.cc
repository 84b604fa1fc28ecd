#include "base/async.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <cstdlib>
#include <exception>

#include "base/log.h"

namespace space {
namespace {}

asio::awaitable<void> sleep_for(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(kAsTuple);
}

void spawn(asio::any_io_executor executor, asio::awaitable<void> task) {
  asio::co_spawn(executor, std::move(task), [](std::exception_ptr error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      log::error("task.exception", {{"what", e.what()}});
    }
    std::abort();
  });
}

asio::awaitable<void> Signal::wait() { co_await timer_.async_wait(kAsTuple); }

asio::awaitable<bool> Signal::wait_for(std::chrono::milliseconds time) {
  using namespace asio::experimental::awaitable_operators;
  const auto winner = co_await (wait() || sleep_for(time));
  co_return winner.index() == 0;
}

}  // namespace space
