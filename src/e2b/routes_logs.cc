// A sandbox's log as E2B's clients read it: what was done with the sandbox (its operations) and, while it runs, which processes were
// started in it and how they ended. What they print is their clients' and is not kept here.
#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "e2b/request.h"
#include "e2b/state.h"

namespace space::e2b {
namespace {

constexpr std::size_t kMostLines = 1000, kMostOperations = 500, kMostProcesses = 4096, kLogAnswer = 4 << 20;

struct Entry {
  std::int64_t time_ms = 0;
  std::string level, message;
  json::object fields;  // texts
};

Result<std::vector<Entry>> read_processes(std::string_view text) {
  TRY(const json::object object, parse_json_object(text, kLogAnswer));
  JsonReader top(object, "logs");
  top.ignore_unknown();
  const json::array* list = top.array("entries", kMostProcesses);
  TRY_VOID(top.done());
  std::vector<Entry> out;
  if (list)
    for (const json::value& item : *list) {
      if (!item.is_object()) continue;
      JsonReader r(item.get_object(), "logs");
      r.ignore_unknown();
      Entry entry{r.number("time_ms", 0, INT64_MAX), r.text("level", 1, 8), r.text("message", 1, 2048), {}};
      for (const char* name : {"pid", "user", "exit_code"})
        if (std::string value = r.text(name, 0, 256, ""); !value.empty()) entry.fields[name] = std::move(value);
      TRY_VOID(r.done());
      if (entry.level != "error" && entry.level != "warn") entry.level = "info";
      entry.fields["logger"] = "process";
      out.push_back(std::move(entry));
    }
  return out;
}

Task<std::vector<Entry>> processes_of(State& state, const control::Sandbox& sandbox) {
  http::Request request;
  request.target = fmt::format("/v1/sandboxes/{}/envd/logs", sandbox.id);
  request.headers.set("Space-Access", "open");
  auto answer = co_await state.parts.node.forwarding().request(std::move(request), kLogAnswer);
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status != 200) co_return std::vector<Entry>();  // an agent of before: operations have to do
  co_return read_processes(answer->body);
}

Task<std::vector<Entry>> operations_of(State& state, const control::Sandbox& sandbox) {
  control::OperationFilter filter;
  filter.sandbox = sandbox.id;
  control::Page page;
  page.limit = kMostOperations;
  CO_TRY(const std::vector<control::Operation> all, co_await state.parts.store.list_operations(sandbox.tenant, page, filter));
  std::vector<Entry> out;
  for (const control::Operation& one : all) {
    Entry entry{one.finished_ms > 0 ? one.finished_ms : one.created_ms,
                one.error ? "error" : "info",
                fmt::format("{} {}", to_string(one.kind), to_string(one.state)),
                {}};
    if (one.error) entry.message += ": " + one.error->message;
    entry.fields = {{"logger", "sandbox"}, {"operation", one.id}};
    out.push_back(std::move(entry));
  }
  co_return out;
}

Task<std::vector<Entry>> log_of(State& state, http::Exchange& exchange) {
  CO_TRY(const Found found, co_await find(state, exchange));
  CO_TRY(std::vector<Entry> all, co_await operations_of(state, found.sandbox));
  if (found.running) {
    CO_TRY(std::vector<Entry> more, co_await processes_of(state, found.sandbox));
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  std::stable_sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.time_ms < b.time_ms; });
  co_return all;
}

json::object render(const Entry& entry) {
  return {{"timestamp", rfc3339(entry.time_ms)}, {"level", entry.level}, {"message", entry.message}, {"fields", entry.fields}};
}

json::object render_line(const Entry& entry) {
  json::object line = entry.fields;
  line["level"] = entry.level;
  line["message"] = entry.message;
  line["timestamp"] = rfc3339(entry.time_ms);
  return {{"timestamp", rfc3339(entry.time_ms)}, {"line", json::serialize(line)}};
}

Result<std::int64_t> number(const http::Target& target, std::string_view name, std::int64_t least, std::int64_t most, std::int64_t absent) {
  const auto text = target.query_value(name);
  if (!text || text->empty()) return absent;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > most)
    return fail(ErrorKind::invalid_argument, "invalid_request", fmt::format("{} must be a whole number from {} to {}", name, least, most));
  return value;
}

Task<> logs_v1(State& state, http::Exchange& exchange) {
  CO_TRY(const std::int64_t start, number(exchange.target(), "start", 0, INT64_MAX, 0));
  CO_TRY(const std::int64_t limit, number(exchange.target(), "limit", 0, kMostLines, kMostLines));
  CO_TRY(std::vector<Entry> all, co_await log_of(state, exchange));
  std::erase_if(all, [&](const Entry& one) { return one.time_ms < start; });
  json::array lines, entries;
  for (std::size_t i = 0; i < std::min(all.size(), static_cast<std::size_t>(limit)); ++i) {
    lines.push_back(render_line(all[i]));
    entries.push_back(render(all[i]));
  }
  const json::object out{{"logs", std::move(lines)}, {"logEntries", std::move(entries)}};
  co_return co_await reply(exchange, 200, out);
}

int rank(std::string_view level) { return level == "debug" ? 0 : level == "info" ? 1 : level == "warn" ? 2 : level == "error" ? 3 : -1; }

// From a time on, in either direction.
Task<> logs_v2(State& state, http::Exchange& exchange) {
  const http::Target& target = exchange.target();
  const bool backward = target.query_value("direction").value_or("forward") == "backward";
  CO_TRY(const std::int64_t cursor, number(target, "cursor", 0, INT64_MAX, backward ? INT64_MAX : 0));
  CO_TRY(const std::int64_t limit, number(target, "limit", 0, kMostLines, kMostLines));
  const std::string level = target.query_value("level").value_or("debug"), search = target.query_value("search").value_or("");
  if (rank(level) < 0) co_return fail(ErrorKind::invalid_argument, "invalid_request", "level must be debug, info, warn or error");
  CO_TRY(std::vector<Entry> all, co_await log_of(state, exchange));
  std::erase_if(all, [&](const Entry& one) {
    return (backward ? one.time_ms > cursor : one.time_ms < cursor) || rank(one.level) < rank(level) ||
           one.message.find(search) == std::string::npos;
  });
  if (backward) std::reverse(all.begin(), all.end());
  json::array entries;
  for (std::size_t i = 0; i < std::min(all.size(), static_cast<std::size_t>(limit)); ++i) entries.push_back(render(all[i]));
  const json::object out{{"logs", std::move(entries)}};
  co_return co_await reply(exchange, 200, out);
}

}  // namespace

void add_log_routes(State& state) {
  add(state, "GET", "/sandboxes/{id}/logs", logs_v1);
  add(state, "GET", "/v2/sandboxes/{id}/logs", logs_v2);
}

}  // namespace space::e2b
