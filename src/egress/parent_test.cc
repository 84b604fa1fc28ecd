// The parent with real worker processes: what survives the death of a worker, and what is refused.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <gmock/gmock.h>

#include "egress/parent.h"
#include "egress/testing.h"

namespace space::egress {
namespace {

constexpr const char* kSandbox = "sandboxsandboxsandbox123";
constexpr const char* kLineage = "lineagelineagelineage123";

struct RunningParent {
  explicit RunningParent(asio::any_io_executor executor)
      : folder(TempDir::make("/tmp", "egress-parent-").value()),
        audit(executor, disk, folder.path(), system_clock(), {}),
        parent(executor, prepare(), disk, audit, Vault(folder.path() / "vault", Secret(std::size_t{32}))) {
    EXPECT_TRUE(parent.open());
  }
  const EgressConfig& prepare() {
    config.data_dir = folder.path();
    config.resolvers = {"127.0.0.1:1"};
    // The same process image: no program has to be found. The child has one thread.
    config.spawn_worker = [](Fd channel) -> Result<pid_t> {
      const pid_t pid = ::fork();
      if (pid == 0) ::_exit(run_worker(std::move(channel), "warn"));
      return pid;
    };
    return config;
  }
  Settings settings(std::int64_t generation, std::string tenant = "t1",
                    std::string policy = R"({"mode":"allowlist","rules":[{"name":"*.example.com"}]})") {
    const std::string text =
        fmt::format(R"({{"tenant":"{}","lineage":"{}","generation":{},"policy":{}}})", tenant, kLineage, generation, policy);
    return Settings::parse(parse_json_object(text).value()).value();
  }
  std::vector<Fd> sockets() {
    std::vector<Fd> out;
    for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_STREAM}) {
      Fd fd(::socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      SocketAddress any = to_socket_address({Address::v4({127, 0, 0, 1}), 0});
      EXPECT_EQ(::bind(fd.get(), any.get(), any.length), 0);
      SocketAddress bound;
      ::getsockname(fd.get(), bound.get(), &bound.length);
      if (type == SOCK_DGRAM) dns_port = from_socket_address(bound)->port;
      out.push_back(std::move(fd));
    }
    return out;
  }
  pid_t worker() {
    const json::object info = parent.info();
    const json::array& workers = info.at("workers").as_array();
    return workers.empty() ? 0 : static_cast<pid_t>(workers[0].as_object().at("pid").as_int64());
  }

  BlockingPool disk{1};
  TempDir folder;
  AuditLog audit;
  EgressConfig config;
  std::uint16_t dns_port = 0;
  Parent parent;
};

asio::awaitable<std::optional<DnsReply>> ask(asio::any_io_executor executor, std::uint16_t port, std::string name) {
  using namespace asio::experimental::awaitable_operators;
  asio::ip::udp::socket guest(executor, asio::ip::udp::v4());
  guest.connect({asio::ip::make_address("127.0.0.1"), port});
  const std::string query = dns_query(7, name, DnsType::a).value();
  boost::system::error_code ignored;
  guest.send(asio::buffer(query), 0, ignored);
  std::array<char, 2048> buffer;
  const auto got = co_await (guest.async_receive(asio::buffer(buffer), kAsTuple) || sleep_for(std::chrono::seconds(3)));
  if (got.index() == 1 || std::get<0>(std::get<0>(got))) co_return std::nullopt;
  auto reply = parse_dns_reply({buffer.data(), std::get<1>(std::get<0>(got))}, 7, name, DnsType::a);
  if (!reply) co_return std::nullopt;
  co_return *reply;
}

TEST(Parent, AWorkersDeathCostsConnectionsAndNothingElse) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningParent running(executor);
    Settings first = running.settings(1);
    EXPECT_TRUE(co_await running.parent.put(kSandbox, std::move(first)));
    std::vector<Fd> sockets = running.sockets();
    EXPECT_TRUE(co_await running.parent.attach(kSandbox, "t1", "loadloadloadloadload1234", std::move(sockets)));
    const auto before = co_await ask(executor, running.dns_port, "a.example.com");
    EXPECT_TRUE(before && before->addresses == std::vector{NameMap::v4(1)});
    EXPECT_EQ(json::serialize(running.parent.traffic()), R"([{"sandbox":"sandboxsandboxsandbox123","open":0,"connections":0,"bytes":0}])");
    const pid_t worker = running.worker();
    EXPECT_GT(worker, 0);
    if (worker <= 0) co_return;
    ::kill(worker, SIGKILL);
    const auto other = co_await ask(executor, running.dns_port, "b.example.com");  // waits in the socket for the next worker
    EXPECT_TRUE(other && other->addresses == std::vector{NameMap::v4(2)});
    const auto again = co_await ask(executor, running.dns_port, "a.example.com");
    EXPECT_TRUE(again && again->addresses == std::vector{NameMap::v4(1)});
    EXPECT_NE(running.worker(), worker);
    Settings none = running.settings(2, "t1", R"({"mode":"none"})");
    EXPECT_TRUE(co_await running.parent.put(kSandbox, std::move(none)));
    const auto refused = co_await ask(executor, running.dns_port, "a.example.com");
    EXPECT_TRUE(refused && refused->code == DnsCode::refused);
    EXPECT_TRUE(co_await running.parent.detach(kSandbox, "otherotherotherother1234"));
    EXPECT_TRUE(running.parent.state(kSandbox)->at("attached").as_bool());
    EXPECT_TRUE(co_await running.parent.detach(kSandbox, "loadloadloadloadload1234"));
    EXPECT_FALSE(running.parent.state(kSandbox)->at("attached").as_bool());
    EXPECT_TRUE(running.parent.traffic().empty());
    EXPECT_NE(running.audit.after(0), nullptr);
  });
}

TEST(Parent, WhatTheRulesRefusedIsAnEventForEachReasonAndAFigure) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningParent running(executor);
    wire::Refusals grown{};
    grown[static_cast<std::size_t>(wire::Refusal::protocols)] = 7;
    grown[static_cast<std::size_t>(wire::Refusal::syn_rate)] = 1;
    EXPECT_EQ(running.parent.refused(kSandbox, grown).error().code, "sandbox_not_found");
    Settings settings = running.settings(1);
    EXPECT_TRUE(co_await running.parent.put(kSandbox, std::move(settings)));
    EXPECT_TRUE(running.parent.refused(kSandbox, grown));
    const AuditEntry* first = running.audit.after(0);
    EXPECT_TRUE(first && first->kind == "connection" && first->tenant == "t1");
    if (!first) co_return;
    EXPECT_THAT(first->text, ::testing::HasSubstr("\"count\":7"));
    const AuditEntry* second = running.audit.after(first->sequence);
    EXPECT_TRUE(second && second->kind == "limit" && running.audit.after(second->sequence) == nullptr);
    EXPECT_THAT(running.parent.figures(), ::testing::HasSubstr("space_egress_packets_refused_total{reason=\"protocols\"} 7\n"));
    EXPECT_THAT(running.parent.figures(), ::testing::HasSubstr("space_egress_decisions_total{kind=\"connection\",verdict=\"deny\"} 7\n"));
  });
}

// The disk was full for a moment: after a restart every address must stand for what the guest was told.
TEST(Parent, ANameThatWasNotWrittenGivesItsNumberToNoOther) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningParent running(executor);
    Settings first = running.settings(1);
    EXPECT_TRUE(co_await running.parent.put(kSandbox, std::move(first)));
    std::vector<Fd> sockets = running.sockets();
    EXPECT_TRUE(co_await running.parent.attach(kSandbox, "t1", "loadloadloadloadload1234", std::move(sockets)));
    const auto folder = running.folder.path() / "egress" / "sandboxes";
    const auto file = folder / (std::string(kSandbox) + ".names");
    const auto kept = [&]() -> std::string {
      const auto found = Records(folder).load();
      return found && found->contains(kSandbox) ? json::serialize(found->at(kSandbox).names.to_json().at("names")) : "none";
    };
    std::filesystem::create_directory(file);  // whatever is written there fails
    const auto lost = co_await ask(executor, running.dns_port, "a.example.com");
    EXPECT_TRUE(lost && lost->addresses == std::vector{NameMap::v4(1)});
    std::filesystem::remove(file);
    const auto next = co_await ask(executor, running.dns_port, "b.example.com");
    EXPECT_TRUE(next && next->addresses == std::vector{NameMap::v4(2)});
    EXPECT_TRUE(co_await running.parent.names(kSandbox));
    EXPECT_EQ(kept(), R"(["a.example.com","b.example.com"])");
    const auto third = co_await ask(executor, running.dns_port, "c.example.com");
    EXPECT_TRUE(third);
    EXPECT_TRUE(co_await running.parent.names(kSandbox));
    EXPECT_EQ(kept(), R"(["a.example.com","b.example.com","c.example.com"])");
  });
}

TEST(Parent, NamesOfACheckpointAreNeverGivenToOthers) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningParent running(executor);
    const auto put = [&](std::vector<std::string> names) -> asio::awaitable<std::string> {
      NameMap map;
      for (const std::string& name : names) map.number(name);
      const auto done = co_await running.parent.put_names(kSandbox, std::move(map));
      co_return done ? "" : done.error().code;
    };
    const auto names = [&]() -> asio::awaitable<std::string> {
      const auto answer = co_await running.parent.names(kSandbox);
      co_return answer ? json::serialize(answer->at("names")) : answer.error().code;
    };
    EXPECT_EQ(co_await names(), "sandbox_not_found");
    const std::vector<std::string> first{"a.example.com", "b.example.com"}, longer{"a.example.com", "b.example.com", "c.example.com"},
        other{"a.example.com", "x.example.com"}, none;
    EXPECT_EQ(co_await put(first), "");
    Settings settings = running.settings(1);
    EXPECT_TRUE(co_await running.parent.put(kSandbox, std::move(settings)));
    std::vector<Fd> sockets = running.sockets();
    EXPECT_TRUE(co_await running.parent.attach(kSandbox, "t1", "loadloadloadloadload1234", std::move(sockets)));
    const auto known = co_await ask(executor, running.dns_port, "b.example.com");
    EXPECT_TRUE(known && known->addresses == std::vector{NameMap::v4(2)});
    const auto fresh = co_await ask(executor, running.dns_port, "c.example.com");
    EXPECT_TRUE(fresh && fresh->addresses == std::vector{NameMap::v4(3)});
    const std::string three = R"(["a.example.com","b.example.com","c.example.com"])";
    EXPECT_EQ(co_await names(), three);  // heard by the parent before it answers
    // A restore to what was before: the map only grows. What contradicts it is refused.
    EXPECT_EQ(co_await put(first), "");
    EXPECT_EQ(co_await put(none), "");
    EXPECT_EQ(co_await put(longer), "");
    EXPECT_EQ(co_await put(other), "names_in_use");
    EXPECT_EQ(co_await names(), three);
    Parent second(executor, running.config, running.disk, running.audit, Vault(running.folder.path() / "vault", Secret(std::size_t{32})));
    EXPECT_TRUE(second.open());
    const auto again = co_await second.names(kSandbox);
    EXPECT_TRUE(again && again->at("names").as_array().size() == 3);
  });
}

TEST(Parent, ServesNothingAfterARestartWhileAChangeThatWasAnnouncedIsNotSettled) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningParent running(executor);
    constexpr const char *kOne = "changechangechangeone123", *kTwo = "changechangechangetwo123", *kLoad = "loadloadloadloadload1234";
    const std::string name = "a.example.com";
    Settings first = running.settings(1);
    EXPECT_TRUE(co_await running.parent.put(kSandbox, std::move(first)));
    std::vector<Fd> sockets = running.sockets();
    EXPECT_TRUE(co_await running.parent.attach(kSandbox, "t1", kLoad, std::move(sockets)));
    EXPECT_TRUE(co_await running.parent.announce(kSandbox, kOne));
    EXPECT_TRUE(co_await running.parent.announce(kSandbox, kOne));
    EXPECT_TRUE(co_await running.parent.announce(kSandbox, kTwo));
    const auto meanwhile = co_await ask(executor, running.dns_port, name);
    EXPECT_TRUE(meanwhile && !meanwhile->addresses.empty()) << "this one knows what is in force";
    EXPECT_TRUE(co_await running.parent.detach(kSandbox, kLoad));

    Parent second(executor, running.config, running.disk, running.audit, Vault(running.folder.path() / "vault", Secret(std::size_t{32})));
    EXPECT_TRUE(second.open());
    EXPECT_TRUE(second.state(kSandbox)->at("held").as_bool());
    EXPECT_EQ(second.state(kSandbox)->at("changes").as_array().size(), 2U);
    sockets = running.sockets();
    EXPECT_TRUE(co_await second.attach(kSandbox, "t1", kLoad, std::move(sockets)));
    const auto refused = [&]() -> asio::awaitable<bool> {
      const auto answer = co_await ask(executor, running.dns_port, name);
      co_return answer && answer->code == DnsCode::refused;
    };
    EXPECT_TRUE(co_await refused());
    // A later policy settles the change that it came of, and no other.
    Settings next = running.settings(2);
    std::vector<std::string> settles{kOne};
    const auto held = co_await second.put(kSandbox, std::move(next), std::move(settles));
    EXPECT_EQ(held ? "" : held.error().code, "policy_held") << "it is not in force";
    EXPECT_EQ(second.state(kSandbox)->at("changes").as_array().size(), 1U);
    EXPECT_TRUE(co_await refused());
    Settings same = running.settings(2);
    const auto still = co_await second.put(kSandbox, std::move(same));
    EXPECT_EQ(still ? "" : still.error().code, "policy_held");
    EXPECT_TRUE(co_await second.withdraw(kSandbox, kTwo));
    EXPECT_FALSE(second.state(kSandbox)->at("held").as_bool());
    const auto served = co_await ask(executor, running.dns_port, name);
    EXPECT_TRUE(served && !served->addresses.empty());

    // Told once more, what is in force already settles too. Nothing announced, nothing held.
    EXPECT_TRUE(co_await second.announce(kSandbox, kOne));
    Settings again = running.settings(2);
    settles = {kOne};
    EXPECT_TRUE(co_await second.put(kSandbox, std::move(again), std::move(settles)));
    EXPECT_TRUE(co_await second.announce("othersandboxothersand123", kOne));  // it has no settings yet
    Parent third(executor, running.config, running.disk, running.audit, Vault(running.folder.path() / "vault", Secret(std::size_t{32})));
    EXPECT_TRUE(third.open());
    EXPECT_FALSE(third.state(kSandbox)->at("held").as_bool());
    EXPECT_EQ(third.state(kSandbox)->at("generation").as_int64(), 2);
    EXPECT_TRUE(third.state("othersandboxothersand123")->at("held").as_bool());
    EXPECT_TRUE(co_await third.withdraw("othersandboxothersand123", kOne));
    EXPECT_FALSE(third.state("othersandboxothersand123"));
    std::string code;
    for (int i = 0; i < 70 && code.empty(); ++i) {
      const auto done = co_await third.announce(kSandbox, fmt::format("changechangechange{:06}", i));
      if (!done) code = done.error().code;
    }
    EXPECT_EQ(code, "too_many_changes");
  });
}

TEST(Parent, ASealedCredentialIsStoredLikeAnother) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningParent running(executor);
    Secret box(std::string_view("not a box"));
    const auto refused = co_await running.parent.put_sealed_credential("t1", "name", std::move(box));
    EXPECT_EQ(refused ? "" : refused.error().code, "bad_sealed_credential");
    EXPECT_EQ(running.parent.credentials("t1").size(), 0U);
    const std::string key = running.parent.sealing_key();
    Parent second(executor, running.config, running.disk, running.audit, Vault(running.folder.path() / "vault", Secret(std::size_t{32})));
    EXPECT_TRUE(second.open());
    EXPECT_EQ(second.sealing_key(), key);
    EXPECT_EQ(running.parent.lineages().size(), 0U);
    EXPECT_TRUE(co_await running.parent.certificate("t1", kLineage));
    EXPECT_EQ(running.parent.lineages().size(), 1U);
    EXPECT_TRUE(co_await running.parent.remove_lineage("t1", kLineage));
    EXPECT_EQ(running.parent.lineages().size(), 0U);
  });
}

TEST(Parent, RefusesOldGenerationsAndOtherTenants) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningParent running(executor);
    const auto put = [&](std::int64_t generation, std::string tenant, std::string policy) -> asio::awaitable<std::string> {
      Settings settings = running.settings(generation, std::move(tenant), std::move(policy));
      const auto done = co_await running.parent.put(kSandbox, std::move(settings));
      co_return done ? "" : done.error().code;
    };
    EXPECT_EQ(co_await put(5, "t1", R"({"mode":"none"})"), "");
    EXPECT_EQ(co_await put(5, "t1", R"({"mode":"none"})"), "");
    EXPECT_EQ(co_await put(5, "t1", R"({"mode":"open"})"), "generation_reused");
    EXPECT_EQ(co_await put(4, "t1", R"({"mode":"open"})"), "stale_generation");
    EXPECT_EQ(co_await put(6, "t2", R"({"mode":"open"})"), "tenant_mismatch");
    std::vector<Fd> sockets = running.sockets();
    const auto attached = co_await running.parent.attach(kSandbox, "t2", "loadloadloadloadload1234", std::move(sockets));
    EXPECT_EQ(attached ? "" : attached.error().code, "tenant_mismatch");
    // The CA of a lineage belongs to the tenant that came first.
    EXPECT_TRUE(co_await running.parent.certificate("t1", kLineage));
    EXPECT_FALSE(co_await running.parent.certificate("t2", kLineage));
    EXPECT_TRUE(co_await running.parent.remove(kSandbox));
    EXPECT_FALSE(running.parent.state(kSandbox));
  });
}

TEST(Parent, SettingsAndSecretsAreThereAfterARestart) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    RunningParent running(executor);
    Settings settings = running.settings(3);
    EXPECT_TRUE(co_await running.parent.put(kSandbox, std::move(settings)));
    Secret value(std::string_view("a secret value"));
    const auto stored = co_await running.parent.put_credential("t1", "name", std::move(value));
    EXPECT_TRUE(stored && stored->at("version").as_int64() == 1);
    Parent second(executor, running.config, running.disk, running.audit, Vault(running.folder.path() / "vault", Secret(std::size_t{32})));
    EXPECT_TRUE(second.open());
    EXPECT_EQ(second.state(kSandbox)->at("generation").as_int64(), 3);
    EXPECT_EQ(second.credentials("t1").size(), 1U);
    EXPECT_EQ(json::serialize(second.credentials("t1")).find("a secret"), std::string::npos);
    EXPECT_EQ(*(co_await second.certificate("t1", kLineage)), *(co_await running.parent.certificate("t1", kLineage)));
  });
}

}  // namespace
}  // namespace space::egress
