#include "egress/flow.h"

#include "egress/tls_session.h"

namespace space::egress {

using Handling = Verdict::Handling;

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
  if (const auto why = objection())
    cut("the policy changed: " + *why);
  else if (on_reconsider)
    on_reconsider();
}

std::optional<std::string> Flow::objection() const {
  const Policy& policy = *settings().policy;
  const Verdict connection = policy.connect(to_);
  Verdict verdict = method_.empty() ? connection : policy.request(to_, method_, path_);
  if (verdict.allowed && !method_.empty() && !host_.empty()) verdict = policy.request({host_, to_.address, to_.port}, method_, path_);
  // A range that is denied from now on counts however the guest came to it, as it does when it is dialled.
  if (verdict.allowed && has_dialled) verdict = policy.connect({to_.name, dialled, to_.port});
  if (!verdict.allowed) return verdict.reason;
  // What passed unread under the old rules cannot be read from the middle; what is read already may go on where it need not be.
  const auto now = handling_of(connection, settings(), to_);
  const bool unread_now =
      now == Handling::splice || (now == Handling::tunnel && (handling != Handling::splice || !names_decide(to_, policy)));
  if (now != handling && !unread_now) return "such connections are handled in another way now: " + connection.reason;
  if (hello && now == Handling::tunnel) return tunnel_refusal(*hello, to_, policy);
  return std::nullopt;
}

void Flow::set_request(std::string method, std::string path, std::string host) {
  method_ = std::move(method);
  path_ = std::move(path);
  host_ = std::move(host);
}

std::optional<std::chrono::milliseconds> Flow::charge(std::size_t bytes) {
  const auto wait = sandbox_->budget().charge(bytes);
  if (!wait) cut("the sandbox used up its bytes");
  return cut_ ? std::nullopt : wait;
}

void Flow::set_dialled(Address address) {
  dialled = address;
  has_dialled = true;
  ++sandbox_->counters().dialled;
}

std::optional<std::chrono::milliseconds> Flow::count_up(std::size_t bytes) {
  went_out(bytes);
  return count_guest(bytes);
}

std::optional<std::chrono::milliseconds> Flow::count_guest(std::size_t bytes) {
  bytes_up += bytes;
  sandbox_->counters().bytes_up += bytes;
  return charge(bytes);
}

std::optional<std::chrono::milliseconds> Flow::count_down(std::size_t bytes) {
  bytes_down += bytes;
  sandbox_->counters().bytes_down += bytes;
  sandbox_->counters().outside += bytes;
  return charge(bytes);
}

asio::awaitable<bool> Flow::pass(std::optional<std::chrono::milliseconds> wait) {
  if (wait && wait->count() > 0) co_await sleep_for(*wait);
  co_return !cut_;
}

asio::awaitable<bool> Flow::passed_up(std::size_t bytes) { return pass(count_up(bytes)); }
asio::awaitable<bool> Flow::passed_down(std::size_t bytes) { return pass(count_down(bytes)); }
asio::awaitable<bool> Flow::heard(std::size_t bytes) { return pass(count_guest(bytes)); }

Event Flow::event(std::string kind, std::string verdict) const {
  Event e;
  e.kind = std::move(kind);
  e.verdict = std::move(verdict);
  e.name = to_.name;
  if (has_dialled)
    e.address = dialled.text();
  else if (to_.address)
    e.address = to_.address->text();
  e.port = to_.port;
  e.protocol = protocol;
  e.bytes_up = bytes_up;
  e.bytes_down = bytes_down;
  return e;
}

}  // namespace space::egress
