// The gateway's parts that need no connection: credentials, the vault, limits, names, settings, explanations, the channel.
#include <gtest/gtest.h>
#include <sodium.h>

#include "base/file.h"
#include "egress/audit.h"
#include "egress/channel.h"
#include "egress/figures.h"
#include "egress/credentials.h"
#include "egress/explain.h"
#include "egress/inflate.h"
#include "egress/limits.h"
#include "egress/name_map.h"
#include "egress/records.h"
#include "egress/resolver.h"
#include "egress/testing.h"
#include "egress/vault.h"
#include "base/unix_socket.h"

namespace space::egress {
namespace {

Settings settings_of(std::string_view policy, std::string_view bindings = "[]") {
  const std::string text =
      fmt::format(R"({{"tenant":"t","lineage":"lineagelineagelineage123","generation":1,"policy":{},"credentials":{}}})", policy, bindings);
  auto settings = Settings::parse(parse_json_object(text).value());
  EXPECT_TRUE(settings) << (settings ? "" : describe(settings.error()));
  return settings ? std::move(*settings) : Settings();
}

constexpr const char* kPolicy = R"({"mode":"allowlist","rules":[{"name":"a.example.com"},{"name":"b.example.com"}]})";

CheckedRequest request_to(std::string name, std::string target = "/v1/x") {
  CheckedRequest request;
  request.method = "GET";
  request.path = target.substr(0, target.find('?'));
  request.target = std::move(target);
  request.to = {std::move(name), std::nullopt, 443};
  return request;
}

TEST(Figures, SumsOutliveSandboxesAndWorkersAndLabelsAreFew) {
  Figures figures;
  figures.counted({}, {{"requests", 5}, {"bytes_up", 100}});
  figures.counted({{"requests", 5}, {"bytes_up", 100}}, {{"requests", 7}, {"bytes_up", 300}});
  figures.counted({{"requests", 7}}, {{"requests", 1}, {"bytes_down", -5}});  // another worker, from the beginning; nonsense counts nothing
  figures.decided({{"kind", "dns"}, {"verdict", "deny"}});
  figures.decided({{"kind", "dns"}, {"verdict", "deny"}, {"count", 41}, {"unreported", true}});
  figures.decided({{"kind", "dns"}, {"verdict", "deny"}, {"count", -7}});
  figures.decided({{"kind", "dns"}, {"verdict", "deny"}, {"count", INT64_MAX}});
  figures.decided({{"kind", "whatever a worker says"}, {"verdict", "x\"} 1\n"}, {"count", "many"}});
  figures.worker_died();
  Figures::Now now;
  now.open_connections = 3;
  const std::string text = figures.text(now);
  for (const char* line :
       {"space_egress_requests_total 8\n", "space_egress_bytes_total{direction=\"up\"} 300\n",
        "space_egress_bytes_total{direction=\"down\"} 0\n", "space_egress_decisions_total{kind=\"dns\",verdict=\"deny\"} 44\n",
        "space_egress_decisions_unreported_total 41\n", "space_egress_decisions_total{kind=\"other\",verdict=\"other\"} 1\n",
        "space_egress_worker_deaths_total 1\n", "space_egress_connections_open 3\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(SealingKey, OpensWhatIsForThisCredentialOfThisTenantAlone) {
  const SealingKey key = SealingKey::make().value();
  const SealingKey same = SealingKey::load(key.private_key()).value();
  EXPECT_EQ(key.public_key(), same.public_key());
  const auto seal_text = [&](std::string text) {
    const std::string to = *base64_decode(key.public_key());
    std::string box(text.size() + crypto_box_SEALBYTES, '\0');
    crypto_box_seal(reinterpret_cast<unsigned char*>(box.data()), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                    reinterpret_cast<const unsigned char*>(to.data()));
    return box;
  };
  const std::string box = seal_text("space-credential-1\nt1\ngithub\nthe value\nitself");
  const auto opened = same.open(box, "t1", "github");
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->view(), "the value\nitself");
  EXPECT_FALSE(key.open(box, "t2", "github"));
  EXPECT_FALSE(key.open(box, "t1", "other"));
  EXPECT_FALSE(SealingKey::make()->open(box, "t1", "github"));
  EXPECT_FALSE(key.open(seal_text("no label"), "t1", "github"));
  std::string changed = box;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  for (const std::string& bad : {changed, box.substr(0, 10), std::string(), std::string(20'000, 'x')})
    EXPECT_FALSE(key.open(bad, "t1", "github"));
  EXPECT_FALSE(SealingKey::load(Secret(std::string_view("short"))));
}

struct Injecting : testing::Test {
  Injecting() { table.set("key", Secret(std::string_view("s3cr3t/value+1234"))); }
  CredentialTable table;
};

TEST_F(Injecting, BasicAndQueryValuesHaveTheirOwnForms) {
  const Settings settings = settings_of(
      kPolicy,
      R"([{"credential":"key","name":"a.example.com","basic":"user"},{"credential":"key","name":"b.example.com","query":"token"}])");
  auto basic = request_to("a.example.com");
  http::Headers headers;
  ASSERT_TRUE(inject(table, settings, true, basic, headers));
  EXPECT_EQ(headers.get("Authorization"), "Basic " + base64_encode(as_bytes("user:s3cr3t/value+1234")));
  auto query = request_to("b.example.com", "/v1/x?a=1&%74oken=mine&b=2");
  http::Headers none;
  ASSERT_TRUE(inject(table, settings, true, query, none));
  EXPECT_EQ(query.target, "/v1/x?a=1&b=2&token=s3cr3t%2Fvalue%2B1234");
}

TEST_F(Injecting, NothingOutsideTlsMethodPathOrHost) {
  const Settings settings =
      settings_of(kPolicy, R"([{"credential":"key","name":"a.example.com","methods":["GET"],"paths":["/v1"],"bearer":true}])");
  const auto put_in = [&](bool tls, std::string name, std::string method, std::string target) {
    auto request = request_to(std::move(name), std::move(target));
    request.method = std::move(method);
    http::Headers headers;
    const auto injection = inject(table, settings, tls, request, headers);
    return injection && headers.has("Authorization");
  };
  EXPECT_TRUE(put_in(true, "a.example.com", "GET", "/v1/x"));
  EXPECT_FALSE(put_in(false, "a.example.com", "GET", "/v1/x"));
  EXPECT_FALSE(put_in(true, "b.example.com", "GET", "/v1/x"));
  EXPECT_FALSE(put_in(true, "a.example.com", "POST", "/v1/x"));
  EXPECT_FALSE(put_in(true, "a.example.com", "GET", "/v10"));
}

TEST_F(Injecting, ReplacesAPlaceholderInItsPlaceAndRefusesItElsewhere) {
  const Settings settings =
      settings_of(kPolicy, R"([{"credential":"key","name":"a.example.com","bearer":true,"placeholder":"PLACEHOLDER-1"}])");
  const auto with = [&](std::string name, std::string header, std::string value, std::string target = "/v1/x") {
    auto request = request_to(std::move(name), std::move(target));
    http::Headers headers{{header, value}};
    const auto injection = inject(table, settings, true, request, headers);
    return injection ? std::string(headers.get(header)) : injection.error().error.code;
  };
  EXPECT_EQ(with("a.example.com", "Authorization", "Bearer PLACEHOLDER-1"), "Bearer s3cr3t/value+1234");
  EXPECT_EQ(with("a.example.com", "Authorization", "Bearer other"), "Bearer other");
  EXPECT_EQ(with("b.example.com", "Authorization", "Bearer PLACEHOLDER-1"), "placeholder_misused");
  EXPECT_EQ(with("a.example.com", "X-Other", "PLACEHOLDER-1"), "placeholder_misused");
  EXPECT_EQ(with("a.example.com", "X-Other", "1", "/v1/x?q=PLACEHOLDER%2D1"), "placeholder_misused");
}

TEST_F(Injecting, AMissingCredentialIsNoReasonToSendWithoutIt) {
  const Settings settings = settings_of(kPolicy, R"([{"credential":"unset","name":"a.example.com","bearer":true}])");
  auto request = request_to("a.example.com");
  http::Headers headers;
  const auto injection = inject(table, settings, true, request, headers);
  ASSERT_FALSE(injection);
  EXPECT_EQ(injection.error().status, 503);
}

TEST_F(Injecting, ScrubsSecretsInEveryFormHoweverTheyAreCut) {
  const Settings settings = settings_of(kPolicy, R"([{"credential":"key","name":"a.example.com","basic":"user"}])");
  auto request = request_to("a.example.com");
  http::Headers headers;
  const auto injection = inject(table, settings, true, request, headers);
  ASSERT_TRUE(injection);
  const std::string basic = base64_encode(as_bytes("user:s3cr3t/value+1234"));
  const std::string text = "a s3cr3t/value+1234 b s3cr3t%2Fvalue%2B1234 c " + basic + " d s3cr3t/value+123 e";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    Scrubber scrubber(*injection);
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) out += scrubber.push(std::string_view(text).substr(at, piece));
    out += scrubber.finish();
    ASSERT_EQ(out.size(), text.size());
    EXPECT_EQ(out.find("s3cr3t/value+1234"), std::string::npos);
    EXPECT_EQ(out.find("s3cr3t%2F"), std::string::npos);
    EXPECT_EQ(out.find(basic.substr(0, basic.size() - 2)), std::string::npos);
    EXPECT_TRUE(out.ends_with(" d s3cr3t/value+123 e")) << out;
  }
  for (const std::string_view around : {"", "x", "Bearer ", "Authorization: Basic user:"}) {
    Scrubber scrubber(*injection);
    const std::string whole = std::string(around) + "s3cr3t/value+1234" + "\r\nX: y";
    std::string out = scrubber.push(base64_encode(as_bytes(whole)));
    out += scrubber.finish();
    EXPECT_NE(out.find("********************"), std::string::npos)
        << around << ": " << out;  // all but the characters shared with its neighbours
  }
  Scrubber prompt(*injection);
  EXPECT_EQ(prompt.push("data: x\n\n"), "data: x\n\n");  // an event stream is not held up
  Scrubber in_turns(*injection);
  in_turns.take_turns();
  EXPECT_EQ(in_turns.push("and you? s3cr3t/val"), "and you? ");  // nor is a frame of a WebSocket, but for what begins a secret
  EXPECT_EQ(in_turns.push("ue+1234"), "*****************");
}

TEST_F(Injecting, ScrubsWithoutTellingHowMuchOfAGuessIsRight) {
  const Settings settings = settings_of(kPolicy, R"([{"credential":"key","name":"a.example.com","bearer":true}])");
  auto request = request_to("a.example.com");
  http::Headers headers;
  const auto injection = inject(table, settings, true, request, headers);
  ASSERT_TRUE(injection);
  for (const std::string& text : {std::string("you said: "), std::string("you said\n"), std::string(500, '.')}) {
    std::set<std::size_t> passed;
    for (const std::string_view guess : {"xxxxxxxxxxxx", "s3cxxxxxxxxx", "s3cr3t/valux", "s3cr3t/value", "xxxxxxs3cr3t"})
      passed.insert(Scrubber(*injection).push(text + std::string(guess)).size());
    EXPECT_EQ(passed.size(), 1U) << text;
  }
}

TEST(Binding, IsRefusedBesideATunnelAndInHeadersThatRoute) {
  const auto bad = [](std::string_view policy, std::string_view bindings) {
    const std::string text = fmt::format(
        R"({{"tenant":"t","lineage":"lineagelineagelineage123","generation":1,"policy":{},"credentials":{}}})", policy, bindings);
    auto settings = Settings::parse(parse_json_object(text).value());
    return settings ? std::string() : settings.error().code;
  };
  constexpr const char* kTunnel = R"({"mode":"allowlist","rules":[{"name":"*.example.com","tunnel":true}]})";
  EXPECT_EQ(bad(kTunnel, R"([{"credential":"k","name":"a.example.com","bearer":true}])"), "credential_beside_tunnel");
  EXPECT_EQ(bad(kTunnel, R"([{"credential":"k","name":"a.example.org","bearer":true}])"), "");
  for (const char* binding :
       {R"([{"credential":"k","name":"a.example.com"}])", R"([{"credential":"k","name":"a.example.com","bearer":true,"query":"q"}])",
        R"([{"credential":"k","name":"a.example.com","header":"Host"}])", R"([{"credential":"K","name":"a.example.com","bearer":true}])",
        R"([{"credential":"k","name":"a.example.com","bearer":true,"extra":1}])"})
    EXPECT_NE(bad(kPolicy, binding), "") << binding;
}

TEST(Vault, KeepsSecretsSealedAndTellsAWrongKey) {
  const TempDir folder = TempDir::make("/tmp", "vault-").value();
  {
    Vault vault(folder.path(), load_store_key("", folder.path() / "store.key").value());
    ASSERT_TRUE(vault.open());
    const auto made = vault.make_credential("t1", "name", "the secret itself", 5);
    ASSERT_TRUE(vault.write_credential("t1", "name", made));
    EXPECT_EQ(read_file(folder.path() / "credentials/t1/name.json", 1 << 20)->find("the secret"), std::string::npos);
  }
  Vault again(folder.path(), load_store_key("", folder.path() / "store.key").value());
  ASSERT_TRUE(again.open());
  EXPECT_EQ(again.reveal("t1", "name")->view(), "the secret itself");
  // A sealed value under another name or tenant is somebody else's.
  auto stolen = again.credentials("t1").at("name");
  again.keep("t2", "name", stolen);
  EXPECT_EQ(again.reveal("t2", "name").error().code, "cannot_unseal");
  Secret other(std::size_t{32});
  Vault wrong(folder.path(), std::move(other));
  EXPECT_EQ(wrong.open().error().code, "wrong_store_key");
  ::setenv("SPACE_TEST_STORE_KEY", "too short", 1);
  EXPECT_EQ(load_store_key("env:SPACE_TEST_STORE_KEY", "").error().code, "bad_store_key");
  EXPECT_EQ(::getenv("SPACE_TEST_STORE_KEY"), nullptr);
  for (const char* value : {"short", "line\nend-of-it", " leading space"}) EXPECT_FALSE(check_secret_value(value)) << value;
}

TEST(NameMap, GivesEachNameOneAddressForEver) {
  NameMap map;
  EXPECT_EQ(map.number("a.example.com"), 1U);
  EXPECT_EQ(map.number("b.example.com"), 2U);
  EXPECT_EQ(map.number("a.example.com"), 1U);
  EXPECT_EQ(*map.find(Address::parse("198.18.0.2").value()), "b.example.com");
  EXPECT_EQ(*map.find(Address::parse("fd00:5ace:c612::c612:2").value()), "b.example.com");
  for (const char* other : {"198.18.0.0", "198.18.0.3", "198.17.255.255", "198.20.0.1", "fd00:5ace:c612::1", "fd00:5ace:c613::c612:2"})
    EXPECT_EQ(map.find(Address::parse(other).value()), nullptr) << other;
  const auto copy = NameMap::parse(map.to_json());
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->names(), map.names());
  for (const char* bad : {R"({"version":1,"names":["A.example.com"]})", R"({"version":1,"names":["a.example.com","a.example.com"]})",
                          R"({"version":2,"names":[]})"})
    EXPECT_FALSE(NameMap::parse(parse_json_object(bad).value())) << bad;
  NameMap full;
  for (std::uint32_t i = 1; i <= NameMap::kMost; ++i) ASSERT_EQ(full.number(fmt::format("n{}.example.com", i)), i);
  EXPECT_EQ(full.number("one-more.example.com"), 0U);
}

TEST(Records, DropALineThatWasBeingWritten) {
  const TempDir folder = TempDir::make("/tmp", "records-").value();
  const Records records(folder.path());
  const std::string id = "sandboxsandboxsandbox123";
  ASSERT_TRUE(records.save(id, {{"a", 1}}));
  ASSERT_TRUE(records.add_name(id, "a.example.com"));
  { ASSERT_TRUE(write_all(open_file(folder.path() / (id + ".names"), O_WRONLY | O_APPEND).value(), "b.exam")); }
  EXPECT_EQ(records.load()->at(id).names.size(), 1U);
  ASSERT_TRUE(records.add_name(id, "c.example.com"));
  EXPECT_EQ(records.load()->at(id).names.names().back(), "c.example.com");
  ASSERT_TRUE(records.sync_names(id));
  EXPECT_TRUE(records.sync_names("unknownunknownunknown123"));
  for (const std::int64_t total : {123'456'789, 7}) {
    ASSERT_TRUE(records.save_total(id, total));
    EXPECT_EQ(records.load()->at(id).total_bytes, total);
  }
}

TEST(Bucket, GivesASecondsWorthAndThenMakesWait) {
  using namespace std::chrono_literals;
  Bucket bucket;
  Bucket::Time now = std::chrono::steady_clock::now();
  EXPECT_TRUE(bucket.try_take(1'000'000, now));  // no limit
  bucket.set_rate(100);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(bucket.try_take(1, now));
  EXPECT_FALSE(bucket.try_take(1, now));
  EXPECT_TRUE(bucket.try_take(50, now + 500ms));
  EXPECT_GE(bucket.take(100, now + 500ms), 1000ms);
}

TEST(ResolverCache, LetsTwentyNewNamesOutInASecondAndCountsANameOnce) {
  ResolverCache cache;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(cache.may_ask("same.example.com", start));
  for (int i = 0; i < 19; ++i) EXPECT_TRUE(cache.may_ask(fmt::format("n{}.example.com", i), start)) << i;
  EXPECT_FALSE(cache.may_ask("one-more.example.com", start));
  EXPECT_TRUE(cache.may_ask("same.example.com", start));
  EXPECT_TRUE(cache.may_ask("one-more.example.com", start + std::chrono::milliseconds(100)));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(cache.may_ask(fmt::format("m{}.example.com", i), start + std::chrono::seconds(5))) << i;
  EXPECT_FALSE(cache.may_ask("same.example.com", start + std::chrono::seconds(5)));
}

TEST(AuditLog, KeepsItsOwnFieldsAndLinesOfBoundedLength) {
  asio::io_context loop;
  BlockingPool disk(1);
  auto folder = TempDir::make("/tmp", "egress-audit-").value();
  AuditLog log(loop.get_executor(), disk, folder.path(), system_clock(), {});
  log.append("t", {{"tenant", "other"}, {"time", "never"}, {"sequence", 1}, {"sandbox", "s"}, {"kind", "dns"}, {"name", "a.example.com"}});
  const AuditEntry* first = log.after(0);
  ASSERT_NE(first, nullptr);
  const json::object line = parse_json_object(first->text).value();
  EXPECT_EQ(line.at("tenant").as_string(), "t");
  EXPECT_NE(line.at("time").as_string(), "never");
  EXPECT_EQ(line.at("sequence").to_number<std::uint64_t>(), first->sequence);
  EXPECT_EQ(line.at("name").as_string(), "a.example.com");
  log.append("t", {{"sandbox", "s"}, {"kind", std::string(100'000, 'k')}, {"name", std::string(100'000, 'n')}});
  const AuditEntry* second = log.after(first->sequence);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->kind, "security");
  EXPECT_LT(second->text.size(), 1'000U);
  EXPECT_EQ(parse_json_object(second->text).value().at("sandbox").as_string(), "s");
}

TEST(Explain, SaysWhatTheGatewayWouldDo) {
  const Settings settings = settings_of(
      R"({"mode":"allowlist","rules":[{"name":"a.example.com","methods":["GET"],"paths":["/v1"]},{"id":"no","action":"deny","name":"b.example.com"},
    {"name":"*.example.com"},{"name":"t.example.org","tunnel":true}]})",
      R"([{"credential":"key","name":"a.example.com","bearer":true}])");
  const auto ask = [&](std::string_view method, std::string_view url) {
    return explain(settings, method, url, {}, {Address::parse("93.184.216.34").value()}).value();
  };
  const json::object yes = ask("GET", "https://a.example.com/v1/x");
  EXPECT_TRUE(yes.at("allowed").as_bool());
  EXPECT_EQ(yes.at("credential").as_string(), "key");
  EXPECT_FALSE(ask("GET", "https://b.example.com/").at("allowed").as_bool());
  EXPECT_FALSE(ask("GET", "https://evil.org/").at("allowed").as_bool());
  EXPECT_EQ(ask("GET", "https://t.example.org/").at("handling").as_string(), "tunnel");
  EXPECT_FALSE(ask("GET", "http://10.0.0.1/").at("allowed").as_bool());
  EXPECT_FALSE(explain(settings, "GET", "ftp://a.example.com/", {}, {}));
  EXPECT_FALSE(explain(settings, "GET", "https://a.example.com@evil.org/", {}, {}));
}

TEST(Explain, KnowsEveryKindOfRule) {
  const Settings settings = settings_of(
      R"({"mode":"allowlist","rules":[{"id":"plain","name":"h.example.com","protocol":"http"},{"id":"database","name":"db.example.com","protocol":"tcp","ports":[5432]},
    {"id":"range","cidr":"93.184.216.0/24","ports":["8000-8010",443]},{"id":"hole","action":"deny","cidr":"93.184.216.8/32"},{"id":"no-delete","action":"deny","name":"*.example.net","methods":["DELETE"]},
    {"id":"net","name":"*.example.net"},{"id":"no-admin","action":"deny","name":"api.example.net","paths":["/admin"]},{"id":"unread","name":"t.example.net","tunnel":true}]})");
  const std::set<Address> own{Address::parse("93.184.216.34").value()};
  const auto ask = [&](std::string_view method, std::string_view url) {
    const json::object answer = explain(settings, method, url, {}, own).value();
    return fmt::format("{} {} {}", answer.at("allowed").as_bool() ? "allowed" : "refused",
                       std::string_view(answer.at("handling").as_string()), std::string_view(answer.at("rule").as_string()));
  };
  EXPECT_EQ(ask("GET", "http://h.example.com/"), "allowed inspect_http plain");
  EXPECT_EQ(ask("GET", "https://h.example.com/"), "refused refuse ");
  EXPECT_EQ(ask("GET", "tcp://db.example.com:5432"), "allowed splice database");
  EXPECT_EQ(ask("GET", "tcp://db.example.com:5433"), "refused refuse ");
  EXPECT_EQ(ask("GET", "https://93.184.216.7/"), "allowed tunnel range");
  EXPECT_EQ(ask("GET", "https://93.184.216.7:8005/"), "allowed tunnel range");
  EXPECT_EQ(ask("GET", "https://93.184.216.8/"), "refused refuse hole");
  EXPECT_EQ(ask("GET", "https://93.184.216.34/"), "refused refuse ") << "an address of the host itself, as the gateway would say";
  EXPECT_EQ(ask("GET", "https://x.example.net/"), "allowed terminate_tls net");
  EXPECT_EQ(ask("DELETE", "https://x.example.net/"), "refused refuse no-delete");
  EXPECT_EQ(ask("GET", "https://api.example.net/admin/x"), "refused refuse no-admin");
  EXPECT_EQ(ask("GET", "https://t.example.net/"), "allowed terminate_tls net") << "the rule that reads most wins";
}

TEST(Observed, PrintsAPolicyThatCanBeSet) {
  Observed observed;
  observed.note({"", Address::parse("93.184.216.7").value(), 80}, Protocol::http, "GET");
  observed.note({"a.example.com", std::nullopt, 443}, Protocol::https, "M-SEARCH");
  EXPECT_TRUE(observed.to_json().at("complete").as_bool());
  observed.note({"a.example.com", std::nullopt, 443}, Protocol::https, "odd_word");
  const json::object printed = observed.to_json();
  EXPECT_FALSE(printed.at("complete").as_bool()) << "no rule can name that method";
  const auto policy = Policy::parse(parse_json_object(json::serialize(printed.at("policy"))).value());
  ASSERT_TRUE(policy) << describe(policy.error());
  EXPECT_TRUE((*policy)->request({"", Address::parse("93.184.216.7").value(), 80}, "GET", "/").allowed);
  EXPECT_TRUE((*policy)->request({"a.example.com", std::nullopt, 443}, "M-SEARCH", "/").allowed);
  EXPECT_FALSE((*policy)->request({"a.example.com", std::nullopt, 443}, "GET", "/").allowed);
}

TEST(Observed, NamesOneWayForAPortAndSaysThatTheOtherIsMissing) {
  Observed observed;
  observed.note({"a.example.com", std::nullopt, 443}, Protocol::tcp, "");
  EXPECT_TRUE(observed.to_json().at("complete").as_bool());
  observed.note({"a.example.com", std::nullopt, 443}, Protocol::https, "GET");
  const json::object printed = observed.to_json();
  EXPECT_FALSE(printed.at("complete").as_bool());
  EXPECT_EQ(printed.at("policy").as_object().at("rules").as_array().size(), 1U);
}

TEST(Inflater, ReadsGzipAndBothKindsOfDeflateAndRefusesRubbish) {
  // "hello hello hello" in the three forms that servers send.
  const std::string gzip = hex_decode("1f8b0800000000000203cb48cdc9c957c84090008088f9e511000000").value();
  const std::string with_header = hex_decode("789ccb48cdc9c957c84090003a2e067d").value(), raw = hex_decode("cb48cdc9c957c8409000").value();
  EXPECT_EQ(Inflater::make(false).value()->push(gzip, true).value(), "hello hello hello");
  EXPECT_EQ(Inflater::make(true).value()->push(with_header, true).value(), "hello hello hello");
  EXPECT_EQ(Inflater::make(true).value()->push(raw, true).value(), "hello hello hello");
  auto pieces = Inflater::make(false).value();
  std::string out;
  for (std::size_t i = 0; i < gzip.size(); ++i) out += pieces->push(gzip.substr(i, 1), i + 1 == gzip.size()).value();
  EXPECT_EQ(out, "hello hello hello");
  auto broken = Inflater::make(false).value();
  EXPECT_FALSE(broken->push("this is no gzip at all", true));
  auto cut = Inflater::make(false).value();
  EXPECT_FALSE(cut->push(std::string_view(gzip).substr(0, 12), true));
}

// Of a worker that was taken over: without end, and each with descriptors.
TEST(Channel, AMessageOfEmptyPartsIsNone) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    auto pair = seqpacket_pair().value();
    auto parent = Channel::make(executor, std::move(pair.second)).value();
    const auto send = [&](std::uint32_t first, std::uint32_t bytes, std::string_view piece, std::size_t fds) {
      const std::uint32_t head[3] = {first, bytes, 0};
      std::string packet(reinterpret_cast<const char*>(head), sizeof head);
      packet += piece;
      const Fd null = open_file("/dev/null", O_RDONLY).value();
      const std::vector<int> given(fds, null.get());
      EXPECT_TRUE(send_packet(pair.first, as_bytes(packet), given));
    };
    send(1, 100, "{", 0);
    send(0, 0, "", 1);
    const auto empty = co_await parent->receive();
    EXPECT_EQ(empty ? "" : empty.error().code, "bad_packet");

    auto other = seqpacket_pair().value();
    auto again = Channel::make(executor, std::move(other.second)).value();
    std::swap(pair, other);
    send(1, 100, "{", 5);
    send(0, 0, " ", 5);
    const auto many = co_await again->receive();
    EXPECT_EQ(many ? "" : many.error().code, "bad_packet");
  });
}

TEST(Channel, CarriesLongMessagesSecretsAndDescriptorsInOrder) {
  test::run([](asio::any_io_executor executor) -> asio::awaitable<void> {
    auto pair = seqpacket_pair().value();
    auto one = Channel::make(executor, std::move(pair.first)).value();
    auto two = Channel::make(executor, std::move(pair.second)).value();
    for (int i = 0; i < 3; ++i) {
      Message message;
      message.body = {{"number", i}, {"text", std::string(300'000, 'x')}};
      message.secret = Secret(std::string_view("secret"));
      message.fds.push_back(open_file("/dev/null", O_RDONLY).value());
      EXPECT_TRUE(one->send(std::move(message)));
    }
    for (int i = 0; i < 3; ++i) {
      auto got = co_await two->receive();
      EXPECT_TRUE(got);
      if (!got) co_return;
      EXPECT_EQ(got->body.at("number").as_int64(), i);
      EXPECT_EQ(got->body.at("text").as_string().size(), 300'000U);
      EXPECT_EQ(got->secret.view(), "secret");
      EXPECT_EQ(got->fds.size(), 1U);
    }
    one->close();
    const auto end = co_await two->receive();
    EXPECT_FALSE(end);
  });
}

}  // namespace
}  // namespace space::egress
