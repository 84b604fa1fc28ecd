// A limit on how long an answer is waited for. What a guest or a VMM does not say in time becomes an error of the caller.
#pragma once

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <chrono>
#include <string>
#include <utility>

#include "base/async.h"

namespace space::node {

// The task's own result, or `late` when `time` passed first; the task is cancelled then and has ended when this returns.
template <class T>
Task<T> with_deadline(Task<T> task, std::chrono::milliseconds time, Error late) {
  using namespace asio::experimental::awaitable_operators;
  auto winner = co_await (std::move(task) || sleep_for(time));
  if (winner.index() == 1) co_return fail(std::move(late));
  co_return std::get<0>(std::move(winner));
}

// As above, and at once with `over` when `end` returns: nobody waits for an answer out of a VM that is gone.
template <class T>
Task<T> with_deadline(Task<T> task, std::chrono::milliseconds time, Error late, asio::awaitable<void> end, Error over) {
  using namespace asio::experimental::awaitable_operators;
  auto winner = co_await (std::move(task) || sleep_for(time) || std::move(end));
  if (winner.index() == 1) co_return fail(std::move(late));
  if (winner.index() == 2) co_return fail(std::move(over));
  co_return std::get<0>(std::move(winner));
}

}  // namespace space::node
