// A sandbox's figures. They are taken when somebody asks, at most every few seconds, and kept for an hour.
#include <charconv>
#include <fmt/format.h>

#include "e2b/figures.h"
#include "e2b/request.h"
#include "e2b/state.h"

namespace space::e2b {
namespace {

constexpr std::int64_t kEvery_ms = 4'000;
constexpr std::size_t kMostSamples = 900;   // of a sandbox
constexpr std::size_t kMostSampled = 1024;  // sandboxes, before those are forgotten whose last sample is an hour old
constexpr std::int64_t kMost = INT64_MAX;

Task<> take_sample(State& state, const control::Sandbox& sandbox) {
  const std::int64_t now = state.parts.clock.wall_ms();
  // Of sandboxes that ended by themselves nobody asks any more.
  if (state.samples.size() > kMostSampled)
    std::erase_if(state.samples, [now](const auto& one) {
      return one.second.empty() || now - one.second.back().time_ms > kEvery_ms * static_cast<std::int64_t>(kMostSamples);
    });
  std::vector<Sample>& samples = state.samples[sandbox.id];
  if (!samples.empty() && now - samples.back().time_ms < kEvery_ms) co_return Result<>();
  http::Request request;
  request.target = fmt::format("/v1/sandboxes/{}/envd/metrics", sandbox.id);
  request.headers.set("Space-Access", "open");
  auto answer = co_await state.parts.node.forwarding().request(std::move(request), 16 << 10);
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status != 200) co_return fail(ErrorKind::unavailable, "agent_not_answering", "the sandbox does not tell its figures");
  CO_TRY(json::object figures, read_figures(answer->body));
  std::vector<Sample>& now_there = state.samples[sandbox.id];  // others may have changed the map
  if (now_there.size() >= kMostSamples) now_there.erase(now_there.begin());
  now_there.push_back({now, std::move(figures)});
  co_return Result<>();
}

json::object render(const Sample& sample) {
  json::object out = sample.figures;
  out["timestamp"] = rfc3339(sample.time_ms);
  out["timestampUnix"] = sample.time_ms / 1000;
  return out;
}

Result<std::int64_t> seconds(const http::Target& target, std::string_view name, std::int64_t absent) {
  const auto text = target.query_value(name);
  if (!text) return absent;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (text->empty() || error != std::errc() || end != text->data() + text->size())
    return fail(ErrorKind::invalid_argument, "invalid_request", fmt::format("{} must be a time in whole seconds", name));
  return value;
}

Task<> metrics(State& state, http::Exchange& exchange) {
  CO_TRY(const std::int64_t from, seconds(exchange.target(), "start", 0));
  CO_TRY(const std::int64_t to, seconds(exchange.target(), "end", kMost / 1000));
  CO_TRY(const Found found, co_await find(state, exchange));
  json::array out;
  if (!found.running) co_return co_await reply(exchange, 200, out);  // old samples say nothing of one that rests
  CO_TRY_VOID(co_await take_sample(state, found.sandbox));
  for (const Sample& sample : state.samples[found.sandbox.id])
    if (sample.time_ms / 1000 >= from && sample.time_ms / 1000 <= to) out.push_back(render(sample));
  co_return co_await reply(exchange, 200, out);
}

Task<> latest_metrics(State& state, http::Exchange& exchange) {
  json::object out;
  const std::string ids = exchange.target().query_value("sandbox_ids").value_or("");
  for (std::string_view rest = ids; !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string one(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    CO_TRY(std::string id, sandbox_id(one));
    auto found = co_await find(state, tenant_of(exchange), id);
    if (!found || !found->running || out.size() >= 100) continue;
    if (auto taken = co_await take_sample(state, found->sandbox); taken && !state.samples[id].empty())
      out[id] = render(state.samples[id].back());
  }
  const json::object answer{{"sandboxes", std::move(out)}};
  co_return co_await reply(exchange, 200, answer);
}

}  // namespace

void add_figure_routes(State& state) {
  add(state, "GET", "/sandboxes/{id}/metrics", metrics);
  add(state, "GET", "/sandboxes/metrics", latest_metrics);
}

}  // namespace space::e2b
