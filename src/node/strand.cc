#include "node/strand.h"

#include <boost/asio/as_tuple.hpp>

namespace space::node {

asio::awaitable<Strand::Turn> Strand::enter() {
  auto state = state_;
  if (!state->busy) {
    state->busy = true;
    co_return Turn(std::move(state));
  }
  auto waiter = std::make_shared<Waiter>(executor_);
  state->waiting.push_back(waiter);
  while (!waiter->admitted) co_await waiter->timer.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return Turn(std::move(state));
}

}  // namespace space::node
