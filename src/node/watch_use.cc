#include "node/watch_use.h"

#include <unistd.h>

#include <optional>

#include "base/json.h"
#include "base/log.h"
#include "http/client.h"
#include "node/automatic_snapshots.h"

namespace space::node {
namespace {

using std::chrono::seconds;

constexpr std::chrono::milliseconds kUseLook{2'000};
constexpr std::size_t kAnswerBytes = 64 << 20;
constexpr std::size_t kMostSandboxes = 1'000'000;
constexpr std::int64_t kMostCount = INT64_MAX / 2;  // of one counter

http::ClientOptions http_options() {
  http::ClientOptions options;
  options.connect_timeout = seconds(2);
  options.head_timeout = seconds(2);
  options.body_timeout = seconds(2);
  return options;
}

// A guest that computes is not idle, whoever asked it to. Under TCG one that does nothing takes up to 1 % of a core. True when any runs.
bool look_at_work(const Sandboxes& sandboxes) {
  static const auto ticks_per_s = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  bool any = false;
  for (const auto& sandbox : sandboxes.all()) {
    if (sandbox->record.state != SandboxState::running || !sandbox->machine) {
      sandbox->work.stand();
      continue;
    }
    any = true;
    sandbox->work.look(processor_ticks(sandbox->machine.vm->pid()), ticks_per_s, Instant::clock::now());
  }
  return any;
}

// A program that waits for somebody's answer computes nothing, and would lose the answer with its machine.
Task<> look_at_traffic(const Sandboxes& sandboxes, http::Client& gateway) {
  http::Request request;
  request.target = "/traffic";
  CO_TRY(const http::Response answer, co_await gateway.call(std::move(request), kAnswerBytes));
  CO_TRY(const auto counters, read_traffic(answer.body));
  for (const auto& [id, now] : counters) {
    const auto sandbox = sandboxes.find(id);
    if (!sandbox || sandbox->record.state != SandboxState::running) continue;
    if (sandbox->traffic.look(now, Instant::clock::now())) sandbox->used = Instant::clock::now();
  }
  co_return Result<>{};
}

}  // namespace

Result<std::map<std::string, Traffic::Counters>> read_traffic(std::string_view text) {
  TRY(const json::object body, parse_json_object(text, kAnswerBytes));
  JsonReader reader(body);
  std::map<std::string, Traffic::Counters> found;
  if (const json::array* list = reader.array("sandboxes", kMostSandboxes))
    for (const json::value& item : *list) {
      if (!item.is_object()) return fail(ErrorKind::internal, "gateway_answer_invalid", "the gateway told of traffic in another form");
      JsonReader one(item.get_object(), "sandboxes");
      one.ignore_unknown();
      std::string id = one.text("sandbox", 1, 64);
      Traffic::Counters counters;
      counters.open = one.number("open", 0, kMostCount);
      counters.connections = one.number("connections", 0, kMostCount);
      counters.bytes = one.number("bytes", 0, kMostCount);
      TRY_VOID(one.done());
      found.emplace(std::move(id), counters);
    }
  TRY_VOID(reader.done());
  return found;
}

asio::awaitable<void> watch_use(asio::any_io_executor executor, Sandboxes& sandboxes, std::filesystem::path gateway, const bool& stopping) {
  std::optional<http::Client> client;
  if (!gateway.empty()) client.emplace(executor, http::unix_connector(gateway.string()), http_options());
  while (!stopping) {
    co_await sleep_for(kUseLook);
    if (stopping || !look_at_work(sandboxes) || !client) continue;
    if (auto looked = co_await look_at_traffic(sandboxes, *client); !looked)
      log::debug("egress.traffic_unknown", {{"error", looked.error()}});
  }
}

}  // namespace space::node
