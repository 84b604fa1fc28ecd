#include "node/events.h"

namespace space::node {
namespace {
constexpr std::size_t kMostQueued = 1024;
}

Events::Listener::Listener(Events& events) : events_(events), signal_(events.executor_) { events_.listeners_.insert(this); }
Events::Listener::~Listener() { events_.listeners_.erase(this); }

asio::awaitable<std::optional<NodeEvent>> Events::Listener::next_for(std::chrono::milliseconds time) {
  if (queue_.empty() && !overflowed_) co_await signal_.wait_for(time);
  if (queue_.empty()) co_return std::nullopt;
  NodeEvent event = std::move(queue_.front());
  queue_.pop_front();
  co_return event;
}

void Events::publish(std::string type, std::string sandbox, std::string reason) {
  const NodeEvent event{++sequence_, std::move(type), std::move(sandbox), std::move(reason)};
  for (Listener* listener : listeners_) {
    if (listener->queue_.size() >= kMostQueued) {
      listener->overflowed_ = true;
    } else {
      listener->queue_.push_back(event);
    }
    listener->signal_.notify_all();
  }
}

}  // namespace space::node
