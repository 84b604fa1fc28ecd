#include "base/async.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <gtest/gtest.h>
#include <semaphore>
#include <stdexcept>
#include <thread>

namespace space {
namespace {

using namespace asio::experimental::awaitable_operators;
using std::chrono::milliseconds;

void run(asio::awaitable<void> task) {
  asio::io_context loop(1);
  spawn(loop.get_executor(), std::move(task));
  loop.run();
}

asio::awaitable<void> one_visit(BlockingPool& pool, bool& done) {
  auto work = [&done] { return done = true; };
  (void)co_await pool.run(work);
}

TEST(BlockingPool, WorkThatIsCancelledBeforeAThreadTookItUpIsDoneAllTheSame) {
  BlockingPool pool(1);
  std::binary_semaphore gate(0);
  bool blocked = false, done = false;
  auto block = [&] { return gate.acquire(), true; };
  auto busy = [&]() -> asio::awaitable<void> { blocked = co_await pool.run(block); };
  auto waiting = [&]() -> asio::awaitable<void> {
    std::jthread release([&gate] {
      std::this_thread::sleep_for(milliseconds(100));
      gate.release();
    });
    const auto first = co_await (one_visit(pool, done) || sleep_for(milliseconds(10)));
    EXPECT_EQ(first.index(), 1u);
    EXPECT_TRUE(done);  // whoever waits for work may lend it their own variables
  };
  asio::io_context loop(1);
  spawn(loop.get_executor(), busy());
  spawn(loop.get_executor(), waiting());
  loop.run();
  EXPECT_TRUE(blocked);
  pool.join();
}

TEST(BlockingPool, AnExceptionComesBackToTheCaller) {
  BlockingPool pool(1);
  std::string caught;
  auto throwing = []() -> bool { throw std::runtime_error("oh"); };
  auto body = [&]() -> asio::awaitable<void> {
    try {
      (void)co_await pool.run(throwing);
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
  };
  run(body());
  EXPECT_EQ(caught, "oh");
  pool.join();
}

}  // namespace
}  // namespace space
