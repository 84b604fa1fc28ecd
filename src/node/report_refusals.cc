#include "node/report_refusals.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "http/client.h"

namespace space::node {
namespace {

using std::chrono::seconds;

constexpr seconds kRefusalLook{5};

struct Counted {
  std::string sandbox, vm;
  std::optional<wire::Refusals> refused;  // nullopt: the VM is gone, or the warden is
};

http::ClientOptions report_options() {
  http::ClientOptions options;
  options.connect_timeout = seconds(2);
  options.head_timeout = seconds(2);
  options.body_timeout = seconds(2);
  return options;
}

Task<> tell(http::Client& gateway, std::string sandbox, wire::Refusals grown) {
  json::object body;
  for (std::size_t i = 0; i < grown.size(); ++i)
    if (grown[i] > 0) body[wire::kRefusals[i]] = grown[i];
  http::Request request;
  request.method = "POST";
  request.target = "/sandboxes/" + sandbox + "/refusals";
  request.headers.set("Content-Type", "application/json");
  request.body = json::serialize(body);
  CO_TRY_VOID(co_await gateway.call(std::move(request), 64 << 10));
  co_return Result<>{};
}

}  // namespace

wire::Refusals RefusalCounts::grown(const std::string& vm, const wire::Refusals& now) const {
  const auto before = told_.find(vm);
  if (before == told_.end()) return now;
  wire::Refusals more{};
  for (std::size_t i = 0; i < now.size(); ++i) more[i] = now[i] - std::min(before->second[i], now[i]);
  return more;
}

asio::awaitable<void> report_refusals(asio::any_io_executor executor, const Sandboxes& sandboxes,
                                      std::shared_ptr<wire::WardenClient> warden, BlockingPool& disk, std::filesystem::path gateway,
                                      const bool& stopping) {
  http::Client client(executor, http::unix_connector(gateway.string()), report_options());
  RefusalCounts counts;
  for (bool first = true; !stopping; first = false) {
    std::vector<Counted> counted;
    std::set<std::string> there;
    for (const auto& sandbox : sandboxes.all()) {
      if (!sandbox->machine) continue;
      there.insert(sandbox->machine.id);
      // One that rests sends nothing.
      if (first || sandbox->record.state == SandboxState::running)
        counted.push_back({sandbox->record.id, sandbox->machine.id, std::nullopt});
    }
    counts.keep_only([&](const std::string& vm) { return there.contains(vm); });
    auto read = [warden, counted]() -> Result<std::vector<Counted>> {
      std::vector<Counted> out = counted;
      for (Counted& one : out)
        if (auto refused = warden->refusals(one.vm)) one.refused = *refused;
      return out;
    };
    if (!counted.empty())
      if (const auto read_now = co_await disk.run(std::move(read)); read_now)
        for (const Counted& one : *read_now) {
          if (!one.refused) continue;
          if (first) {
            counts.begin_with(one.vm, *one.refused);
            continue;
          }
          const wire::Refusals grown = counts.grown(one.vm, *one.refused);
          if (grown == wire::Refusals{}) continue;
          const auto told = co_await tell(client, one.sandbox, grown);
          if (told || told.error().kind == ErrorKind::not_found)
            counts.told(one.vm, *one.refused);
          else
            log::debug("egress.refusals_not_told", {{"sandbox", one.sandbox}, {"error", told.error()}});
        }
    co_await sleep_for(kRefusalLook);
  }
}

}  // namespace space::node
