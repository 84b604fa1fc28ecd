#include "control/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/encoding.h"
#include "base/log.h"
#include "control/adopt.h"
#include "http/sse.h"

namespace space::control {
namespace {

constexpr std::size_t kInventoryLimit = 16 << 20;    // an inventory of thousands
constexpr std::size_t kRequestLimit = 16 << 20;      // of a create, as any API recorded it
constexpr std::chrono::minutes kLongestChange{15};   // the first create of a template makes its base, under TCG a minute or more
constexpr std::chrono::seconds kLongestSilence{45};  // node's event stream has a sign of life far more often
constexpr std::int64_t kRememberUs = 10'000'000;
constexpr std::size_t kMostRemembered = 256;
constexpr std::size_t kMostSpans = 200;

http::ClientOptions options(std::chrono::milliseconds head, std::size_t idle) {
  http::ClientOptions out;
  out.head_timeout = head;
  out.max_idle = idle;
  return out;
}

// Steps of an operation, as node tells them; anything odd is left out, since they only explain.
std::vector<Span> spans_of(const json::object& answer) {
  std::vector<Span> out;
  const json::value* list = answer.if_contains("spans");
  if (!list || !list->is_array()) return out;
  for (const json::value& item : list->get_array()) {
    if (!item.is_object() || out.size() == kMostSpans) continue;
    JsonReader reader(item.get_object(), "spans");
    reader.ignore_unknown();
    Span span;
    span.name = reader.text("name", 1, 64);
    span.start_us = reader.number("start_us", 0, INT64_MAX / 4);
    span.duration_us = reader.number("duration_us", 0, INT64_MAX / 4);
    if (reader.done()) out.push_back(std::move(span));
  }
  return out;
}

std::string target_of(std::string_view sandbox, std::string_view rest = {}) {
  return fmt::format("/v1/sandboxes/{}{}", percent_encode(sandbox), rest);
}

bool read_worked(const json::array& pairs, std::vector<NodeSandbox::Worked>& out) {
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const json::value &percent = pairs[i], &ms = pairs[i + 1];
    if (!percent.is_int64() || !ms.is_int64() || ms.get_int64() < 0) return false;
    out.push_back({percent.get_int64(), ms.get_int64()});
  }
  return pairs.size() % 2 == 0;
}

}  // namespace

Error node_unavailable(std::string_view why) {
  return {ErrorKind::unavailable, "node_unavailable", fmt::format("the node that runs the sandboxes does not answer: {}", why),
          "try again in a few seconds; if it lasts, look at the node role's log"};
}

Node::Node(asio::any_io_executor executor, std::string socket_path, const Clock& clock)
    : clock_(clock),
      client_(std::make_unique<http::Client>(executor, http::unix_connector(socket_path), options(kLongestChange, 64))),
      ports_(std::make_unique<http::Client>(executor, http::unix_connector(socket_path), options(std::chrono::minutes(11), 64))),
      forwarding_(std::make_unique<http::Client>(executor, http::unix_connector(socket_path), options(std::chrono::minutes(5), 64))),
      watching_(std::make_unique<http::Client>(executor, http::unix_connector(socket_path), options(std::chrono::seconds(10), 1))),
      down_since_us_(clock.monotonic_us()) {}

Node::~Node() = default;

void Node::seen(bool there) {
  if (there == reachable_) return;
  reachable_ = there;
  if (there) {
    log::info("node.reachable");
  } else {
    down_since_us_ = clock_.monotonic_us();
    log::warn("node.unreachable");
  }
}

Task<json::object> Node::ask(std::string method, std::string target, std::string body, http::Headers headers) {
  http::Request request;
  request.headers = std::move(headers);
  request.method = std::move(method);
  request.target = std::move(target);
  if (!body.empty()) request.headers.set("Content-Type", "application/json");
  request.body = std::move(body);
  auto answer = co_await client_->request(std::move(request), kInventoryLimit);
  seen(answer.has_value());
  if (!answer) co_return fail(node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  if (answer->body.empty()) co_return json::object();
  auto parsed = parse_json_object(answer->body, kInventoryLimit);
  if (!parsed)
    co_return fail(ErrorKind::internal, "node_answer_invalid", "node's answer cannot be read: " + parsed.error().message, "see node's log");
  co_return std::move(*parsed);
}

Task<NodeDone> Node::change(std::string method, std::string target, std::string body) {
  CO_TRY(const json::object answer, co_await ask(std::move(method), std::move(target), std::move(body)));
  JsonReader reader(answer);
  reader.ignore_unknown();
  NodeDone done;
  done.template_digest = reader.text("template_digest", 0, 100, "");
  done.cpus = reader.number("cpus", 0, 1 << 20, 0);
  done.memory_mib = reader.number("memory_mib", 0, 1 << 24, 0);
  CO_TRY_VOID(reader.done());
  done.spans = spans_of(answer);
  co_return done;
}

Task<NodeDone> Node::create(const Sandbox& sandbox, const Operation& operation, std::string kept) {
  json::object body{{"operation", operation.id}, {"tenant", sandbox.tenant},         {"template", sandbox.template_reference},
                    {"cpus", sandbox.cpus},      {"memory_mib", sandbox.memory_mib}, {"disk_mib", sandbox.disk_mib}};
  CO_TRY(json::object request, parse_json_object(operation.request.empty() ? "{}" : operation.request, kRequestLimit));
  for (auto& item : request) body[item.key()] = std::move(item.value());
  if (!kept.empty()) body["kept"] = std::move(kept);
  co_return co_await change("PUT", target_of(sandbox.id), json::serialize(body));
}

Task<NodeDone> Node::remove(std::string sandbox, std::string operation) {
  auto done = co_await change("DELETE", target_of(sandbox, "?operation=" + percent_encode(operation)), "");
  if (!done && done.error().kind == ErrorKind::not_found) co_return NodeDone();
  co_return done;
}

Task<NodeDone> Node::act(std::string sandbox, std::string verb, json::object body) {
  co_return co_await change("POST", target_of(sandbox, "/" + verb), json::serialize(body));
}

Task<> Node::may_attach(std::string sandbox, std::string session, std::string token) {
  http::Headers headers;
  headers.set("Authorization", "Bearer " + token);
  CO_TRY_VOID(co_await ask("GET", target_of(sandbox, fmt::format("/commands/{}/access", percent_encode(session))), "", std::move(headers)));
  co_return Result<>();
}

std::int64_t NodeSandbox::unused_ms(std::int64_t cpu_percent) const {
  std::int64_t least = idle_ms;
  for (const Worked& one : worked)
    if (one.percent > cpu_percent) least = std::min(least, one.ms);
  return least;
}

Task<std::vector<NodeSandbox>> Node::inventory() {
  CO_TRY(const json::object answer, co_await ask("GET", "/v1/sandboxes"));
  std::vector<NodeSandbox> out;
  JsonReader top(answer);
  top.ignore_unknown();
  if (const json::array* list = top.array("sandboxes", 1'000'000))
    for (const json::value& item : *list) {
      if (!item.is_object())
        co_return fail(ErrorKind::internal, "node_answer_invalid", "node's inventory holds something else than objects", "");
      JsonReader reader(item.get_object(), "sandboxes");
      reader.ignore_unknown();
      NodeSandbox found{reader.text("id", 1, 64),
                        reader.text("tenant", 0, 64, ""),
                        reader.text("state", 1, 32),
                        reader.text("end_reason", 0, 128, ""),
                        reader.number("idle_ms", 0, INT64_MAX, 0),
                        reader.text("kept_digest", 0, 100, "")};
      if (const json::array* worked = reader.array("worked", 202))
        if (!read_worked(*worked, found.worked)) reader.reject("worked", "must be percentages and milliseconds by turns");
      CO_TRY_VOID(reader.done());
      out.push_back(std::move(found));
    }
  CO_TRY_VOID(top.done());
  co_return out;
}

Task<NodeRecord> Node::look(std::string sandbox) {
  CO_TRY(const json::object answer, co_await ask("GET", target_of(sandbox)));
  JsonReader reader(answer);
  reader.ignore_unknown();
  NodeRecord out;
  Sandbox& s = out.sandbox;
  s.id = sandbox;
  s.tenant = reader.text("tenant", 0, 128, "");
  const auto state = sandbox_state(reader.text("state", 1, 32));
  if (!state) reader.reject("state", "must be one of a sandbox's states");
  s.state = state.value_or(SandboxState::ended);
  s.template_reference = reader.text("template", 0, 256, "");
  s.template_digest = reader.text("template_digest", 0, 128, "");
  s.cpus = reader.number("cpus", 0, 1 << 20, 0);
  s.memory_mib = reader.number("memory_mib", 0, 1 << 24, 0);
  s.disk_mib = reader.number("disk_mib", 0, 1 << 28, 0);
  s.created_ms = reader.number("created_ms", 0, INT64_MAX, 0);
  s.end_reason = reader.text("end_reason", 0, 1024, "");
  out.kept = reader.text("kept", 0, kMostKept, "");
  CO_TRY_VOID(reader.done());
  co_return out;
}

Task<> Node::keep(std::string sandbox, std::string kept) {
  const json::object body{{"kept", std::move(kept)}};
  CO_TRY_VOID(co_await ask("PUT", target_of(sandbox, "/kept"), json::serialize(body)));
  co_return Result<>();
}

Task<json::object> Node::info() { co_return co_await ask("GET", "/v1/info"); }

Task<TemplateSize> Node::template_size(std::string reference) {
  const auto known = sizes_.find(reference);
  if (known != sizes_.end() && known->second.until_us > clock_.monotonic_us()) co_return known->second.size;
  CO_TRY(const json::object answer, co_await ask("GET", "/v1/templates/" + percent_encode(reference)));
  JsonReader reader(answer);
  reader.ignore_unknown();
  TemplateSize size;
  size.cpus = reader.number("cpus", 1, 1024, size.cpus);
  size.memory_mib = reader.number("memory_mib", 1, 1 << 24, size.memory_mib);
  size.disk_mib = reader.number("disk_mib", 1, 1 << 28, size.disk_mib);
  CO_TRY_VOID(reader.done());
  if (sizes_.size() >= kMostRemembered) sizes_.clear();
  sizes_[reference] = {size, clock_.monotonic_us() + kRememberUs};
  co_return size;
}

void Node::forget_template_sizes() { sizes_.clear(); }

Task<> Node::follow(std::function<void()> connected, Told ended, Told kept, Told wanted) {
  http::Request request;
  request.target = "/v1/events";
  request.headers.set("Accept", "text/event-stream");
  auto opened = co_await watching_->open(std::move(request));
  if (!opened) {
    seen(false);
    co_return fail(node_unavailable(opened.error().message));
  }
  const std::unique_ptr<http::ClientStream> stream = std::move(*opened);
  auto sent = co_await stream->finish_request();
  if (!sent) co_return fail(node_unavailable(sent.error().message));
  auto head = co_await stream->head();
  seen(head.has_value());
  if (!head) co_return fail(node_unavailable(head.error().message));
  if (head->status != 200) co_return fail(node_unavailable(fmt::format("its event stream answered {}", head->status)));
  stream->set_body_timeout(kLongestSilence);
  connected();
  http::SseReader events(64 << 10);
  std::string buffer(16 << 10, '\0');
  while (true) {
    auto got = co_await stream->read(std::as_writable_bytes(std::span(buffer)));
    if (!got || *got == 0) {  // the next try, a moment later, tells whether it is there
      seen(false);
      co_return fail(node_unavailable(got ? "its event stream ended" : got.error().message));
    }
    CO_TRY(const auto batch, events.feed(std::string_view(buffer).substr(0, *got)));
    for (const http::SseEvent& event : batch) {
      const std::pair<std::string_view, const Told&> known[] = {
          {"sandbox_ended", ended}, {"sandbox_snapshot", kept}, {"volume_wanted", wanted}};
      const auto* const found = std::find_if(std::begin(known), std::end(known), [&](const auto& one) { return one.first == event.event; });
      if (found == std::end(known) || !found->second) continue;
      const Told& told = found->second;
      auto data = parse_json_object(event.data, 64 << 10);
      if (!data) continue;
      JsonReader reader(*data);
      reader.ignore_unknown();
      std::string sandbox = reader.text("sandbox", 1, 64);
      std::string reason = reader.text("reason", 0, 128, "");
      if (reader.done()) told(std::move(sandbox), std::move(reason));
    }
  }
}

}  // namespace space::control
