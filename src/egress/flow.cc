#include "egress/flow.h"

namespace space::egress {

Flow::Flow(std::shared_ptr<Sandbox> sandbox, Destination to) : sandbox_(std::move(sandbox)), to_(std::move(to)) { sandbox_->add(*this); }
Flow::~Flow() { sandbox_->remove(*this); }

std::string Flow::host_text() const { return !to_.name.empty() ? to_.name : to_.address ? to_.address->text() : std::string("?"); }

void Flow::cut(std::string why) {
  if (cut_) return;
  cut_ = true;
  why_cut_ = std::move(why);
  for (http::Stream* stream : streams_) stream->reset();
}

void Flow::reconsider() {
  const Policy& policy = *settings().policy;
  const Verdict verdict = method_.empty() ? policy.connect(to_) : policy.request(to_, method_, path_);
  if (!verdict.allowed) cut("the policy changed: " + verdict.reason);
  else if (on_reconsider) on_reconsider();
}

void Flow::set_request(std::string method, std::string path) {
  method_ = std::move(method);
  path_ = std::move(path);
}

asio::awaitable<bool> Flow::passed_up(std::size_t bytes) {
  bytes_up += bytes;
  sandbox_->counters().bytes_up += bytes;
  const bool within = co_await sandbox_->budget().spend(bytes);
  if (!within) cut("the sandbox used up its bytes");
  co_return !cut_;
}

asio::awaitable<bool> Flow::passed_down(std::size_t bytes) {
  bytes_down += bytes;
  sandbox_->counters().bytes_down += bytes;
  const bool within = co_await sandbox_->budget().spend(bytes);
  if (!within) cut("the sandbox used up its bytes");
  co_return !cut_;
}

Event Flow::event(std::string kind, std::string verdict) const {
  Event e;
  e.kind = std::move(kind);
  e.verdict = std::move(verdict);
  e.name = to_.name;
  if (has_dialled) e.address = dialled.text();
  else if (to_.address) e.address = to_.address->text();
  e.port = to_.port;
  e.protocol = protocol;
  e.bytes_up = bytes_up;
  e.bytes_down = bytes_down;
  return e;
}

}  // namespace space::egress
