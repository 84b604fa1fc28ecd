#include "node/gateway.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <fmt/format.h>
#include <sys/socket.h>

#include "base/encoding.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstPause{50}, kLongestPause{1000};
constexpr milliseconds kPatience{3000};          // the supervisor has a new gateway up within two seconds
constexpr std::size_t kCertificateBytes = 3584;  // what a guest's agent takes (src/agent/authority.h)
constexpr std::size_t kNamesBytes = 8 << 20;     // 16,384 names at their longest

http::ClientOptions http_options() {
  http::ClientOptions options;
  options.connect_timeout = seconds(2);
  options.head_timeout = seconds(5);
  options.body_timeout = seconds(5);
  return options;
}

}  // namespace

Gateway::Gateway(asio::any_io_executor executor, std::shared_ptr<wire::WardenClient> warden, const std::filesystem::path& run_dir)
    : executor_(executor),
      warden_(std::move(warden)),
      run_dir_(run_dir / "egress"),
      http_(executor, http::unix_connector((run_dir_ / "egress.sock").string()), http_options()),
      changed_(executor) {}

Gateway::~Gateway() { pool_.join(); }

asio::awaitable<std::string> Gateway::admit(std::string vm, Member member) {
  using namespace asio::experimental::awaitable_operators;
  const auto [entry, fresh] = entries_.try_emplace(vm);
  if (fresh) {
    entry->second.member = member;
    entry->second.load = new_id();
  }
  if (entry->second.handed && !entry->second.certificate.empty()) co_return entry->second.certificate;
  const std::string known = vm;
  auto handing = hand_over(std::move(vm));
  auto asking = certificate(std::move(member));
  auto [handed, pem] = co_await (std::move(handing) && std::move(asking));
  const bool late = !pem && pem.error().kind == ErrorKind::unavailable;
  if (const auto again = entries_.find(known); again != entries_.end()) {
    again->second.late = late;
    again->second.certificate = pem.value_or(std::string());
  }
  if (!handed || late) changed_.notify_all();  // run() goes on with it
  co_return pem.value_or(std::string());
}

// Blocks on the pool: the sockets are made in the namespace by the warden, and given away at once.
asio::awaitable<bool> Gateway::hand_over(std::string vm) {
  const auto found = entries_.find(vm);
  if (found == entries_.end() || found->second.handed || found->second.asked || !client_)
    co_return found == entries_.end() || found->second.handed;
  found->second.asked = true;
  const auto client = client_;
  const Entry entry = found->second;
  if (auto told = co_await give_names(entry.member); !told) {
    const bool refused = told.error().kind != ErrorKind::unavailable;
    log::warn(refused ? "egress.names_refused" : "egress.names_not_given",
              {{"sandbox", entry.member.sandbox}, {"vm", vm}, {"error", told.error()}});
    if (const auto again = entries_.find(vm); again != entries_.end()) {
      again->second.asked = false;
      again->second.refused = refused;
    }
    co_return refused;
  }
  auto give = [warden = warden_, client, entry, vm]() -> Result<> {
    TRY(const std::vector<Fd> sockets, warden->egress_sockets(vm));
    return client->attach(entry.member.sandbox, entry.member.tenant, entry.load, sockets);
  };
  auto given = co_await pool_.run(std::move(give));
  std::string load = entry.load;
  if (!given && given.error().code == "address_in_use") {
    // A node before this one handed them over, and the gateway still has them.
    http::Request request;
    request.target = "/sandboxes/" + entry.member.sandbox;
    const auto answer = co_await http_.call(std::move(request), 1 << 20);
    const auto state = answer ? parse_json_object(answer->body, 1 << 20) : Result<json::object>(fail(answer.error()));
    const json::value* known = state ? state->if_contains("load") : nullptr;
    if (known && known->is_string() && is_id(known->get_string())) {
      load = known->get_string();
      given = Result<>();
    }
  }
  const auto again = entries_.find(vm);
  if (again == entries_.end()) co_return true;  // dismissed meanwhile: its descriptors are gone with the namespace's owner
  again->second.asked = false;
  if (given) {
    again->second.load = load;
    again->second.handed = true;
    co_return true;
  }
  log::warn("egress.not_handed_over", {{"sandbox", entry.member.sandbox}, {"vm", vm}, {"error", given.error()}});
  if (given.error().kind == ErrorKind::unavailable) lost(client);
  co_return false;
}

asio::awaitable<void> Gateway::dismiss(std::string vm) {
  const auto found = entries_.find(vm);
  if (found == entries_.end()) co_return;
  // A hand-over that is under way ends first, so that the detach finds what it gave.
  for (int i = 0; i < 200 && entries_.contains(vm) && entries_[vm].asked; ++i) co_await sleep_for(milliseconds(20));
  const auto last = entries_.find(vm);
  if (last == entries_.end()) co_return;
  const Entry entry = last->second;
  entries_.erase(last);
  const auto client = client_;
  if (!entry.handed || !client) co_return;
  auto take = [client, entry] { return client->detach(entry.member.sandbox, entry.load); };
  if (auto taken = co_await pool_.run(std::move(take)); !taken) {
    log::warn("egress.not_taken_back", {{"sandbox", entry.member.sandbox}, {"vm", vm}, {"error", taken.error()}});
    if (taken.error().kind == ErrorKind::unavailable) lost(client);
  }
}

void Gateway::lost(const std::shared_ptr<wire::EgressClient>& client) {
  if (client_ != client) return;
  ::shutdown(client->socket().get(), SHUT_RDWR);  // closed() has a descriptor of it, and ends by this
  client_.reset();
  for (auto& [vm, entry] : entries_) entry.handed = false;
  log::warn("egress.lost", {{"sandboxes", entries_.size()}});
  changed_.notify_all();
}

asio::awaitable<bool> Gateway::connect() {
  const std::string path = (run_dir_ / "fds.sock").string();
  auto open = [path] { return wire::EgressClient::connect(path); };
  auto made = co_await pool_.run(std::move(open));
  if (!made) co_return false;
  client_ = std::move(*made);
  spawn(executor_, [](Gateway& self, std::shared_ptr<wire::EgressClient> client) -> asio::awaitable<void> {
    co_await closed(client);
    self.lost(client);
  }(*this, client_));
  co_return true;
}

// Returns when the gateway's end of the socket is gone. The answers that are read elsewhere do not wake it: only a hang-up does.
asio::awaitable<void> Gateway::closed(std::shared_ptr<wire::EgressClient> client) {
  auto copy = client->socket().duplicate();
  if (!copy) co_return;
  asio::posix::stream_descriptor socket(co_await asio::this_coro::executor);
  boost::system::error_code error;
  socket.assign(copy->get(), error);
  if (error) co_return;
  (void)copy->release();
  co_await socket.async_wait(asio::posix::stream_descriptor::wait_error, asio::as_tuple(asio::use_awaitable));
}

asio::awaitable<void> Gateway::run() {
  for (milliseconds pause = kFirstPause;;) {
    if (!client_ && !co_await connect()) {
      co_await sleep_for(pause);
      pause = std::min(pause * 2, kLongestPause);
      continue;
    }
    pause = kFirstPause;
    bool complete = true;
    std::vector<std::string> due;
    for (const auto& [vm, entry] : entries_)
      if (!entry.handed && !entry.asked && !entry.refused) due.push_back(vm);
    for (const std::string& vm : due) {
      const bool handed = co_await hand_over(vm);
      complete = complete && handed;
    }
    std::vector<std::string> late;
    for (auto& [vm, entry] : entries_)
      if (std::exchange(entry.late, false)) late.push_back(vm);
    for (const std::string& vm : late)
      if (late_) late_(vm);
    complete = complete && late.empty();
    if (!due.empty()) log::info("egress.handed_over", {{"sandboxes", due.size()}, {"complete", complete}});
    if (complete)
      co_await changed_.wait_for(std::chrono::hours(1));
    else
      co_await sleep_for(kLongestPause);
  }
}

Task<std::string> Gateway::ask(http::Request request, std::size_t limit) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (milliseconds pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    http::Request copy = request;
    auto answer = co_await http_.call(std::move(copy), limit);
    if (answer) co_return std::move(answer->body);
    if (answer.error().kind != ErrorKind::unavailable && answer.error().kind != ErrorKind::deadline_exceeded)
      co_return fail(std::move(answer).error());
    if (std::chrono::steady_clock::now() + pause > end)
      co_return fail(ErrorKind::unavailable, "egress_unavailable", "the egress gateway does not answer: " + answer.error().message,
                     "try again in a moment");
    co_await sleep_for(pause);
  }
}

Task<std::string> Gateway::certificate(Member member) {
  const std::string lineage = member.lineage.empty() ? member.sandbox : member.lineage;
  http::Request request;
  request.target = fmt::format("/ca/{}?tenant={}", lineage, percent_encode(member.tenant));
  auto answer = co_await ask(std::move(request), kCertificateBytes);
  if (!answer) log::warn("egress.no_certificate", {{"sandbox", member.sandbox}, {"error", answer.error()}});
  co_return answer;
}

Task<> Gateway::give_names(const Member& member) {
  if (!member.names || member.names->empty()) co_return Result<>{};
  http::Request request;
  request.method = "PUT";
  request.target = "/sandboxes/" + member.sandbox + "/names";
  request.headers.set("Content-Type", "application/json");
  request.body = *member.names;
  CO_TRY_VOID(co_await http_.call(std::move(request), 64 << 10));
  co_return Result<>{};
}

Task<std::string> Gateway::names(std::string sandbox) {
  http::Request request;
  request.target = "/sandboxes/" + sandbox + "/names";
  auto answer = co_await ask(std::move(request), kNamesBytes);
  if (!answer && answer.error().kind == ErrorKind::not_found) co_return std::string();  // it was never told an address
  co_return answer;
}

Task<std::vector<Gateway::Lineage>> Gateway::lineages() {
  http::Request request;
  request.target = "/ca";
  CO_TRY(const std::string text, co_await ask(std::move(request), kNamesBytes));
  CO_TRY(const json::object body, parse_json_object(text, kNamesBytes));
  JsonReader reader(body);
  std::vector<Lineage> found;
  if (const json::array* list = reader.array("lineages", 1'000'000))
    for (const json::value& item : *list) {
      if (!item.is_object()) continue;
      JsonReader one(item.get_object(), "lineages");
      Lineage lineage{one.text("lineage", 20, 40), one.text("tenant", 1, 64)};
      if (one.done() && is_id(lineage.lineage)) found.push_back(std::move(lineage));
    }
  CO_TRY_VOID(reader.done());
  co_return found;
}

Task<> Gateway::forget(Lineage lineage) {
  http::Request request;
  request.method = "DELETE";
  request.target = fmt::format("/ca/{}?tenant={}", lineage.lineage, percent_encode(lineage.tenant));
  CO_TRY_VOID(co_await http_.call(std::move(request), 64 << 10));
  co_return Result<>{};
}

}  // namespace space::node
