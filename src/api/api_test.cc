// The API from outside: every route's behaviour over a fake node.
#include "api/testing.h"

#include "api/openapi.h"
#include "api/tenancy.h"
#include "api/request.h"
#include "http/sse.h"

namespace space::api {
namespace {

using testing::Answer;
using testing::ApiTest;
using testing::run;
using testing::text;

constexpr const char* kUnknown = "aaaaaaaaaaaaaaaaaaaaaaaa";

TEST_F(ApiTest, TheContractNamesEveryRouteAndNoOther) {
  const auto contract = parse_json(openapi_json(), 4 << 20);
  ASSERT_TRUE(contract);
  std::vector<std::string> named;
  for (const auto& path : contract->at("paths").as_object())
    for (const auto& method : path.value().as_object()) {
      std::string name(method.key());
      if (name == "parameters") continue;
      std::ranges::transform(name, name.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
      named.push_back(name + " " + std::string(path.key()));
      const json::object& operation = method.value().as_object();
      EXPECT_NE(operation.contains("security") && operation.at("security").as_array().empty(), operation.contains("x-space-scope"))
          << named.back();
    }
  std::ranges::sort(named);
  EXPECT_EQ(named, process_->router.routes());
  EXPECT_EQ(contract->at("openapi").as_string(), "3.1.0");
  EXPECT_EQ(contract->at("info").at("version").as_string(), SPACE_VERSION);
}

TEST_F(ApiTest, HealthAndContractNeedNoKey) {
  key_.clear();
  EXPECT_EQ(send("GET", "/v1/health").status, 200);
  EXPECT_EQ(send("GET", "/openapi.json").status, 200);
  for (const char* path : {"/v1/version", "/v1/sandboxes", "/v1/keys", "/v1/events", "/v1/templates", "/metrics", "/v1/operations"}) {
    const Answer refused = send("GET", path);
    EXPECT_EQ(refused.status, 401) << path;
    EXPECT_EQ(refused.code(), "key_missing");
    EXPECT_EQ(refused.headers.get("WWW-Authenticate"), "Bearer");
  }
}

TEST_F(ApiTest, WrongKeysAreRefusedEachWithItsReason) {
  const auto with = [&](const std::string& authorization) {
    http::Request out = request("GET", "/v1/sandboxes");
    out.headers.set("Authorization", authorization);
    const Answer answer = send(std::move(out));
    EXPECT_EQ(answer.status, 401);
    return answer.code();
  };
  EXPECT_EQ(with("Basic abc"), "key_malformed");
  EXPECT_EQ(with("Bearer"), "key_malformed");
  EXPECT_EQ(with("Bearer sk_short"), "key_malformed");
  EXPECT_EQ(with("Bearer sk_" + std::string(43, 'A')), "key_unknown");
  EXPECT_EQ(with("Bearer at_" + std::string(43, 'A')), "key_malformed") << "an attach token opens one session, not this";
}

TEST_F(ApiTest, KeysAreMadeListedAndRevoked) {
  const Answer made = send("POST", "/v1/keys", R"({"name":"ci"})");
  ASSERT_EQ(made.status, 201);
  const std::string first = key_, second = text(made.body, "key"), id = text(made.body, "id");
  EXPECT_TRUE(second.starts_with("sk_"));
  EXPECT_EQ(send("GET", "/v1/keys").body.at("keys").as_array().size(), 2u);
  EXPECT_EQ(send("GET", "/v1/keys").text.find(second), std::string::npos);
  key_ = second;
  EXPECT_EQ(send("GET", "/v1/sandboxes").status, 200);
  key_ = first;
  EXPECT_EQ(send("DELETE", "/v1/keys/" + id).status, 200);
  EXPECT_EQ(send("DELETE", "/v1/keys/" + id).status, 200) << "twice is the same";
  key_ = second;
  EXPECT_EQ(send("GET", "/v1/sandboxes").code(), "key_revoked");
  key_ = first;
  const std::string own = text(send("GET", "/v1/keys").body.at("keys").as_array()[0].as_object(), "id");
  EXPECT_EQ(send("DELETE", "/v1/keys/" + own).code(), "last_key");
  EXPECT_EQ(send("DELETE", std::string("/v1/keys/") + kUnknown).status, 404);
  EXPECT_EQ(send("POST", "/v1/keys", R"({"name":""})").status, 400);
  EXPECT_EQ(send("POST", "/v1/keys", R"({"name":"x","admin":true})").code(), "invalid_field");
}

TEST_F(ApiTest, CreateAnswersAtOnceAndTheOperationEnds) {
  const Answer made = send("POST", "/v1/sandboxes", R"({"metadata":{"a":"b"},"env":{"X":"1"},"time_limit_s":60})");
  ASSERT_EQ(made.status, 202) << made.text;
  const std::string operation = text(made.at("operation"), "id"), id = text(made.at("sandbox"), "id");
  EXPECT_EQ(made.headers.get("Location"), "/v1/operations/" + operation);
  EXPECT_TRUE(made.headers.has("Request-Id"));
  EXPECT_EQ(text(made.at("sandbox"), "state"), "creating");
  const Answer done = send("GET", "/v1/operations/" + operation + "?wait=10");
  EXPECT_EQ(text(done.body, "state"), "succeeded");
  EXPECT_GE(done.body.at("spans").as_array().size(), 2u);
  const Answer sandbox = send("GET", "/v1/sandboxes/" + id);
  EXPECT_EQ(text(sandbox.body, "state"), "running");
  EXPECT_EQ(text(sandbox.at("metadata"), "a"), "b");
  EXPECT_TRUE(text(sandbox.body, "template_digest").starts_with("sha256:"));
  EXPECT_TRUE(sandbox.body.contains("ends_at"));
  EXPECT_EQ(fake_.boxes[id].request.at("env").as_object().at("X").as_string(), "1");
}

TEST_F(ApiTest, PreferWaitAnswersWhenItIsReadyOrTheTimeIsOver) {
  const std::string id = running();
  EXPECT_EQ(send_with("POST", "/v1/sandboxes/" + id + "/pause", "", {{"Prefer", "wait=5"}}).status, 200);
  EXPECT_EQ(send_with("POST", "/v1/sandboxes/" + id + "/resume", "{}", {{"Prefer", "respond-async, wait=5"}}).status, 200);
  const Answer removed = send_with("DELETE", "/v1/sandboxes/" + id, "", {{"Prefer", "wait=5"}});
  EXPECT_EQ(removed.status, 200);
  EXPECT_FALSE(removed.body.contains("sandbox"));
  fake_.hold = true;
  EXPECT_EQ(send_with("POST", "/v1/sandboxes", "{}", {{"Prefer", "wait=1"}}).status, 202);
  fake_.release();
  EXPECT_EQ(send_with("POST", "/v1/sandboxes", "{}", {{"Prefer", "wait=soon"}}).code(), "invalid_header");
}

TEST_F(ApiTest, AFailedCreateThatWasWaitedForIsItsError) {
  fake_.fail_with = Error{ErrorKind::resource_exhausted, "node_full", "the node is full", "delete some"};
  const Answer failed = send_with("POST", "/v1/sandboxes", "{}", {{"Prefer", "wait=5"}});
  EXPECT_EQ(failed.status, 429);
  EXPECT_EQ(failed.code(), "node_full");
  EXPECT_EQ(text(failed.at("operation"), "state"), "failed");
  const Answer sandbox = send("GET", "/v1/sandboxes/" + text(failed.at("operation"), "sandbox"));
  EXPECT_EQ(text(sandbox.body, "state"), "failed");
}

TEST_F(ApiTest, AnUnknownTemplateIsRefusedAtOnce) {
  for (const char* body : {R"({"template":"nosuch"})", R"({"template":"nosuch:latest"})"}) {
    const Answer refused = send("POST", "/v1/sandboxes", body);
    EXPECT_EQ(refused.status, 404);
    EXPECT_EQ(refused.code(), "template_not_found");
  }
  EXPECT_TRUE(send("GET", "/v1/sandboxes").body.at("sandboxes").as_array().empty());
  EXPECT_EQ(send("GET", "/v1/templates/nosuch").code(), "template_not_found");
  EXPECT_EQ(send("GET", "/v1/templates/..%2F..%2Fetc").code(), "template_not_found");
  EXPECT_EQ(send("GET", "/v1/templates/base:latest").status, 200);
  EXPECT_EQ(send("GET", "/v1/templates").status, 200);
}

TEST_F(ApiTest, KnownTemplatesCostNoQuestionPerCreate) {
  for (int i = 0; i < 5; ++i) send("POST", "/v1/sandboxes");
  EXPECT_EQ(fake_.count("TEMPLATE"), 1u);
}

TEST_F(ApiTest, DeletingTwiceAndWhileCreating) {
  fake_.hold_before = true;
  const Answer made = send("POST", "/v1/sandboxes");
  const std::string id = text(made.at("sandbox"), "id");
  const Answer first = send("DELETE", "/v1/sandboxes/" + id);
  EXPECT_EQ(first.status, 202);
  EXPECT_EQ(text(first.at("sandbox"), "state"), "deleting");
  const Answer done = send("GET", "/v1/operations/" + text(first.at("operation"), "id") + "?wait=10");
  EXPECT_EQ(text(done.body, "state"), "succeeded");
  EXPECT_EQ(text(send("GET", "/v1/operations/" + text(made.at("operation"), "id") + "?wait=10").body, "state"), "cancelled");
  const Answer again = send("DELETE", "/v1/sandboxes/" + id);
  EXPECT_EQ(again.status, 404);
  EXPECT_EQ(again.code(), "sandbox_not_found");
  EXPECT_EQ(send("GET", "/v1/sandboxes/" + id).status, 404);
  EXPECT_TRUE(fake_.boxes.empty());
}

TEST_F(ApiTest, CancelHasDefinedAnswers) {
  fake_.hold_before = true;
  const Answer made = send("POST", "/v1/sandboxes");
  const std::string operation = text(made.at("operation"), "id");
  EXPECT_EQ(send("POST", "/v1/operations/" + operation + "/cancel").status, 202);
  EXPECT_EQ(text(send("GET", "/v1/operations/" + operation + "?wait=10").body, "state"), "cancelled");
  EXPECT_EQ(send("POST", "/v1/operations/" + operation + "/cancel").code(), "operation_finished");
  EXPECT_EQ(send("POST", std::string("/v1/operations/") + kUnknown + "/cancel").code(), "operation_not_found");
  EXPECT_EQ(send("GET", "/v1/sandboxes/" + text(made.at("sandbox"), "id")).status, 404);
}

TEST_F(ApiTest, BodiesAreReadStrictly) {
  const auto refused = [&](const std::string& body) {
    const Answer answer = send("POST", "/v1/sandboxes", body);
    EXPECT_GE(answer.status, 400) << body.substr(0, 100);
    EXPECT_EQ(answer.headers.get("Content-Type"), "application/problem+json");
    return answer.code();
  };
  EXPECT_EQ(refused(R"({"cpus":"1"})"), "invalid_field");
  EXPECT_EQ(refused(R"({"cpus":1.5})"), "invalid_field");
  EXPECT_EQ(refused(R"({"cpus":0})"), "invalid_field");
  EXPECT_EQ(refused(R"({"memory":512})"), "invalid_field");
  EXPECT_EQ(refused(R"({"env":{"A B":"x"}})"), "invalid_field");
  EXPECT_EQ(refused(R"({"env":{"A":1}})"), "invalid_field");
  EXPECT_EQ(refused(R"({"metadata":[]})"), "invalid_field");
  EXPECT_EQ(refused(R"({"template":"a/b"})"), "invalid_field");
  EXPECT_EQ(refused(R"({"time_limit_s":-1})"), "invalid_field");
  EXPECT_EQ(refused("[]"), "invalid_json");
  EXPECT_EQ(refused("{"), "invalid_json");
  EXPECT_EQ(refused("\"\xff\""), "invalid_json");
  EXPECT_EQ(refused("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"), "json_too_deep");
  EXPECT_EQ(refused(R"({"metadata":{"a":")" + std::string(17 << 10, 'x') + "\"}}"), "invalid_field");
  EXPECT_EQ(send("POST", "/v1/sandboxes", "{\"metadata\":{\"a\":\"" + std::string(2 << 20, 'x') + "\"}}").status, 413);
  http::Request form = request("POST", "/v1/sandboxes", "a=b");
  form.headers.set("Content-Type", "application/x-www-form-urlencoded");
  EXPECT_EQ(send(std::move(form)).status, 415);
  EXPECT_TRUE(fake_.boxes.empty());
}

// The limits that the contract names are those of the code: what is at one is taken, what is beyond it is not.
TEST(CreateBody, KeepsToTheLimitsOfTheContract) {
  const auto contract = parse_json(openapi_json(), 4 << 20);
  ASSERT_TRUE(contract);
  const json::object& fields = contract->at("components").at("schemas").at("CreateSandbox").at("properties").as_object();
  const auto taken = [](std::string_view name, json::value value) {
    json::object body;
    body[name] = std::move(value);
    const auto read = read_create(body);
    EXPECT_EQ(read ? "invalid_field" : read.error().code, "invalid_field") << name;
    return read.has_value();
  };
  int numbers = 0;
  for (const auto& field : fields) {
    const json::object& schema = field.value().as_object();
    if (!schema.contains("minimum") || !schema.contains("maximum")) continue;
    const auto least = schema.at("minimum").as_int64(), most = schema.at("maximum").as_int64();
    EXPECT_TRUE(taken(field.key(), least) && taken(field.key(), most)) << field.key();
    EXPECT_FALSE(taken(field.key(), least - 1) || taken(field.key(), most + 1)) << field.key();
    ++numbers;
  }
  EXPECT_EQ(numbers, 7) << "cpus, memory_mib, disk_mib, time_limit_s, idle_pause_s, idle_suspend_s, idle_cpu_percent";

  const auto map_of = [](std::size_t names, std::size_t bytes) {
    json::object map;
    for (std::size_t i = 0; i < names; ++i) map["N" + std::to_string(i)] = std::string(bytes, 'x');
    return map;
  };
  for (const char* name : {"env", "metadata"}) {
    const json::object& schema = fields.at(name).as_object();
    const auto names = schema.at("maxProperties").to_number<std::size_t>();
    const auto longest = schema.at("additionalProperties").at("maxLength").to_number<std::size_t>();
    const auto longest_name = schema.at("propertyNames").at("maxLength").to_number<std::size_t>();
    EXPECT_TRUE(taken(name, map_of(names, 1))) << name;
    EXPECT_FALSE(taken(name, map_of(names + 1, 1))) << name;
    EXPECT_TRUE(taken(name, map_of(1, longest))) << name;
    EXPECT_FALSE(taken(name, map_of(1, longest + 1))) << name;
    for (const std::size_t more : {0U, 1U}) {
      json::object map;
      map[std::string(longest_name + more, 'n')] = "";
      EXPECT_EQ(taken(name, std::move(map)), more == 0) << name;
    }
    json::object full = map_of(4, longest - 2);  // with its four names: all that it may hold
    EXPECT_TRUE(taken(name, full)) << name;
    full["A"] = "";
    EXPECT_FALSE(taken(name, std::move(full))) << name;
  }
}

TEST_F(ApiTest, AMoveNamesBothItsEndsAndEachOnce) {
  const std::string move = std::string("/v1/sandboxes/") + kUnknown + "/files/move";
  for (const char* body : {"{}", R"({"from":"/a"})", R"({"to":"/b"})", R"({"from":"/a","from_base64":"L2E=","to":"/b"})",
                           R"({"from":"/a","to":"/b","to_base64":"L2I="})"})
    EXPECT_EQ(send("POST", move, body).code(), "invalid_field") << body;
  for (const char* body : {R"({"from":"/a","to":"/b"})", R"({"from_base64":"L2E=","to_base64":"L2I="})"})
    EXPECT_EQ(send("POST", move, body).code(), "sandbox_not_found") << body;
}

TEST_F(ApiTest, OddIdsAreNotFoundAndReachNobody) {
  const std::size_t before = fake_.calls.size();
  for (const char* id : {"a%2Fb", "%2e%2e%2fkeys", "x", "..%2f..%2fetc%2fpasswd", "AAAAAAAAAAAAAAAAAAAAAAAA", "aaaaaaaaaaaaaaaaaaaaaaa."}) {
    for (const char* rest : {"", "/commands", "/files/content?path=/x"}) {
      const Answer answer = send("GET", std::string("/v1/sandboxes/") + id + rest);
      EXPECT_TRUE(answer.status == 404 || answer.status == 400) << id << rest << " " << answer.status;
    }
    const int status = send("GET", std::string("/v1/operations/") + id).status;
    EXPECT_TRUE(status == 404 || status == 400) << id;
  }
  EXPECT_EQ(fake_.calls.size(), before);
}

TEST_F(ApiTest, HeaderFloodsAreRefused) {
  http::Request many = request("GET", "/v1/sandboxes");
  for (int i = 0; i < 200; ++i) many.headers.add("X-" + std::to_string(i), "y");
  EXPECT_EQ(send(std::move(many)).status, 431);
  http::Request large = request("GET", "/v1/sandboxes");
  large.headers.add("X-Large", std::string(40 << 10, 'y'));
  EXPECT_EQ(send(std::move(large)).status, 431);
  EXPECT_EQ(send("GET", "/v1/sandboxes").status, 200) << "and nobody else notices";
}

TEST_F(ApiTest, ListsHaveStrictQueriesAndCursors) {
  for (int i = 0; i < 7; ++i) send("POST", "/v1/sandboxes", i % 2 ? R"({"metadata":{"odd":"yes"}})" : "");
  std::set<std::string> seen;
  std::string target = "/v1/sandboxes?limit=3";
  int pages = 0;
  for (std::string next = "?"; !next.empty(); ++pages) {
    const Answer page = send("GET", next == "?" ? target : target + "&after=" + next);
    ASSERT_EQ(page.status, 200);
    for (const auto& item : page.body.at("sandboxes").as_array()) EXPECT_TRUE(seen.insert(text(item.as_object(), "id")).second);
    next = page.body.at("next").is_null() ? "" : text(page.body, "next");
  }
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(send("GET", "/v1/sandboxes?metadata.odd=yes").body.at("sandboxes").as_array().size(), 3u);
  EXPECT_EQ(send("GET", "/v1/sandboxes?metadata.odd=no").body.at("sandboxes").as_array().size(), 0u);
  EXPECT_EQ(send("GET", "/v1/sandboxes?state=paused,ended").body.at("sandboxes").as_array().size(), 0u);
  EXPECT_EQ(send("GET", "/v1/operations?limit=2").body.at("operations").as_array().size(), 2u);
  for (const char* query :
       {"limit=0", "limit=x", "limit=201", "after=zzz", "after=czEuMDE", "state=happy", "what=ever", "limit=1&limit=2", "metadata.=x"}) {
    const Answer answer = send("GET", std::string("/v1/sandboxes?") + query);
    EXPECT_EQ(answer.status, 400) << query;
    EXPECT_EQ(answer.code(), "invalid_query") << query;
  }
}

TEST_F(ApiTest, AKeyDoesWhatItsScopesSay) {
  const auto made = [&](std::string_view body) { return text(send("POST", "/v1/keys", std::string(body)).body, "key"); };
  const std::string all = key_, reads = made(R"({"name":"r","scopes":["read"]})"), runs = made(R"({"name":"x"})"),
                    publishes = made(R"({"name":"p","scopes":["publish"]})");
  const auto with = [&](const std::string& key, std::string method, std::string target, std::string body = "") {
    key_ = key;
    return send(std::move(method), std::move(target), std::move(body)).code();
  };
  EXPECT_EQ(with(reads, "GET", "/v1/sandboxes"), "");
  EXPECT_EQ(with(reads, "POST", "/v1/sandboxes", "{}"), "scope_missing");
  EXPECT_EQ(with(reads, "GET", std::string("/v1/sandboxes/") + kUnknown + "/commands/" + kUnknown + "/attach"), "scope_missing")
      << "it starts the process";
  EXPECT_EQ(with(runs, "GET", "/v1/sandboxes"), "");
  EXPECT_EQ(with(runs, "POST", "/v1/sandboxes", "{}"), "");
  EXPECT_EQ(with(runs, "GET", "/v1/keys"), "scope_missing");
  EXPECT_EQ(with(runs, "DELETE", "/v1/templates/base"), "scope_missing");
  EXPECT_EQ(with(publishes, "GET", "/v1/sandboxes"), "scope_missing");
  EXPECT_EQ(with(all, "POST", "/v1/keys", R"({"name":"x","scopes":[]})"), "invalid_field");
  EXPECT_EQ(with(all, "POST", "/v1/keys", R"({"name":"x","scopes":["root"]})"), "invalid_field");
  EXPECT_EQ(with(all, "POST", "/v1/keys", R"({"name":"x","expires_in_s":0})"), "invalid_field");
}

TEST_F(ApiTest, AKeyEndsAtItsTime) {
  const std::string short_lived =
      run(loop_, process_->keys.create("default", "s", control::Scopes::all(), system_clock().wall_ms() + 400))->secret;
  key_ = short_lived;
  EXPECT_EQ(send("GET", "/v1/sandboxes").status, 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(450));
  EXPECT_EQ(send("GET", "/v1/sandboxes").code(), "key_expired") << "also one that is known already";
}

TEST_F(ApiTest, KeysOfOtherTenantsAreForTheHostAlone) {
  const std::string host = key_;
  EXPECT_EQ(send("POST", "/v1/keys", R"({"name":"x","tenant":"second"})").code(), "second_tenant_on_tcg")
      << "the node of these tests has no KVM";
  process_->services.tenants_on_tcg = true;
  const Answer made = send("POST", "/v1/keys", R"({"name":"x","tenant":"second","scopes":["admin"]})");
  ASSERT_EQ(made.status, 201);
  EXPECT_EQ(text(made.body, "tenant"), "second");
  EXPECT_EQ(send("POST", "/v1/keys", R"({"name":"x","tenant":"../x"})").code(), "invalid_tenant");
  EXPECT_EQ(send("POST", "/v1/keys", R"({"name":"x","tenant":""})").code(), "invalid_tenant");
  EXPECT_EQ(send("GET", "/v1/keys?tenant=second").body.at("keys").as_array().size(), 1u);
  key_ = text(made.body, "key");
  EXPECT_EQ(send("POST", "/v1/keys", R"({"name":"x","tenant":"default"})").code(), "host_only");
  EXPECT_EQ(send("GET", "/v1/keys?tenant=default").code(), "host_only");
  EXPECT_EQ(send("GET", "/metrics").code(), "host_only");
  EXPECT_EQ(send("DELETE", "/v1/templates/base").code(), "host_only") << "templates are shared by all tenants";
  EXPECT_EQ(send("POST", "/v1/keys", R"({"name":"own"})").status, 201);
  key_ = host;
  EXPECT_EQ(send("DELETE", "/v1/keys/" + text(made.body, "id")).status, 200);
  process_->services.tenants_on_tcg = false;
  const auto admitted = run(loop_, admit_present_tenants(process_->services));
  ASSERT_FALSE(admitted) << "a server with a second tenant does not start";
  EXPECT_EQ(admitted.error().code, "second_tenant_on_tcg");
}

TEST_F(ApiTest, WhoKeepsTheServerIsToldOfSandboxesThatNobodyHasAKeyFor) {
  const std::string first = key_;
  const NewKey theirs = *run(loop_, process_->keys.create("other", "theirs"));
  key_ = theirs.secret;
  running();
  EXPECT_FALSE(send("GET", "/v1/sandboxes").body.contains("without_key"));
  key_ = first;
  running();
  running();
  EXPECT_FALSE(send("GET", "/v1/sandboxes").body.contains("without_key"));
  EXPECT_EQ(send("DELETE", "/v1/keys/" + theirs.key.id).status, 200);
  const Answer page = send("GET", "/v1/sandboxes?limit=1");
  const json::array& keyless = page.body.at("without_key").as_array();
  ASSERT_EQ(keyless.size(), 1u);
  EXPECT_EQ(text(keyless[0].as_object(), "tenant"), "other");
  EXPECT_EQ(keyless[0].as_object().at("sandboxes").as_int64(), 1);
  EXPECT_FALSE(send("GET", "/v1/sandboxes?after=" + text(page.body, "next")).body.contains("without_key")) << "once is enough";
  key_ = run(loop_, process_->keys.create("third", "another"))->secret;
  EXPECT_FALSE(send("GET", "/v1/sandboxes").body.contains("without_key")) << "nobody else is";
}

TEST_F(ApiTest, OtherTenantsSeeNothing) {
  const std::string id = running();
  const Answer operations = send("GET", "/v1/operations");
  const std::string operation = text(operations.body.at("operations").as_array()[0].as_object(), "id");
  key_ = run(loop_, process_->keys.create("other", "theirs"))->secret;
  for (const auto& [method, target] :
       std::vector<std::pair<std::string, std::string>>{{"GET", "/v1/sandboxes/" + id},
                                                        {"DELETE", "/v1/sandboxes/" + id},
                                                        {"POST", "/v1/sandboxes/" + id + "/pause"},
                                                        {"GET", "/v1/operations/" + operation},
                                                        {"POST", "/v1/operations/" + operation + "/cancel"},
                                                        {"GET", "/v1/operations/" + operation + "/events"},
                                                        {"GET", "/v1/sandboxes/" + id + "/commands"},
                                                        {"GET", "/v1/sandboxes/" + id + "/files/content?path=/x"}})
    EXPECT_EQ(send(method, target).status, 404) << method << " " << target;
  EXPECT_TRUE(send("GET", "/v1/sandboxes").body.at("sandboxes").as_array().empty());
  EXPECT_TRUE(send("GET", "/v1/operations").body.at("operations").as_array().empty());
  EXPECT_EQ(send("GET", "/v1/keys").body.at("keys").as_array().size(), 1u);
}

TEST_F(ApiTest, TheDataPlaneGoesToNodeWithTheTenantAndNothingElse) {
  const std::string id = running();
  const Answer echoed =
      send_with("POST", "/v1/sandboxes/" + id + "/commands", R"({"command":"true"})",
                {{"Space-Tenant", "other"}, {"space-request", "forged"}, {"SPACE-Admin", "1"}, {"Cookie", "a=b"}, {"X-Mine", "kept"}});
  ASSERT_EQ(echoed.status, 201) << echoed.text;
  const json::object& headers = echoed.at("headers");
  EXPECT_EQ(text(headers, "Space-Tenant"), "default");
  EXPECT_EQ(text(headers, "Space-Request"), echoed.headers.get("Request-Id"));
  EXPECT_EQ(text(headers, "X-Mine"), "kept");
  for (const char* name : {"Authorization", "SPACE-Admin", "Cookie", "Idempotency-Key"}) EXPECT_FALSE(headers.contains(name)) << name;
  EXPECT_EQ(text(echoed.body, "body"), R"({"command":"true"})");
  const Answer query = send("GET", "/v1/sandboxes/" + id + "/files/stat?path=%2Ftmp%2Fa%20b&user=root");
  EXPECT_EQ(text(query.body, "target"), "/v1/sandboxes/" + id + "/files/stat?path=%2Ftmp%2Fa%20b&user=root");
  EXPECT_EQ(send("GET", "/v1/sandboxes/" + id + "/commands/a.b").code(), "session_not_found");
  http::Request upload = request("PUT", "/v1/sandboxes/" + id + "/files/content?path=/big", std::string(3 << 20, 'z'));
  upload.headers.set("Content-Type", "application/octet-stream");
  EXPECT_EQ(send(std::move(upload)).body.at("bytes").as_int64(), 3 << 20) << "the limit of JSON bodies is not that of files";
}

TEST_F(ApiTest, FileBodiesAreCheckedHere) {
  const std::string files = "/v1/sandboxes/" + running() + "/files";
  EXPECT_EQ(send("POST", files + "/mkdir", R"({"path":"/a","parents":true})").status, 201);
  EXPECT_EQ(send("POST", files + "/mkdir", R"({"path":"/a","parent":true})").code(), "invalid_field");
  EXPECT_EQ(send("POST", files + "/mkdir", R"({"path":"/a","path_base64":"L2E="})").code(), "invalid_field");
  EXPECT_EQ(send("POST", files + "/mkdir", R"({})").code(), "invalid_field");
  EXPECT_EQ(send("POST", files + "/move", R"({"from":"/a"})").code(), "invalid_field");
}

TEST_F(ApiTest, SandboxesThatCannotAnswerSayWhy) {
  const std::string id = running();
  const std::string commands = "/v1/sandboxes/" + id + "/commands";
  send_with("POST", "/v1/sandboxes/" + id + "/pause", "", {{"Prefer", "wait=5"}});
  EXPECT_EQ(send("GET", commands).code(), "sandbox_paused");
  send_with("POST", "/v1/sandboxes/" + id + "/resume", "", {{"Prefer", "wait=5"}});
  fake_.end(id, "vmm_exited");
  for (int i = 0; i < 200 && text(send("GET", "/v1/sandboxes/" + id).body, "state") != "ended"; ++i) spin(std::chrono::milliseconds(5));
  const Answer ended = send("GET", commands);
  EXPECT_EQ(ended.status, 409);
  EXPECT_EQ(ended.code(), "sandbox_ended");
  fake_.hold = true;
  const Answer young = send("POST", "/v1/sandboxes");
  const Answer early = send("GET", "/v1/sandboxes/" + text(young.at("sandbox"), "id") + "/commands");
  EXPECT_EQ(early.code(), "sandbox_not_ready");
  EXPECT_EQ(early.headers.get("Retry-After"), "1");
  fake_.release();
}

TEST_F(ApiTest, AttachTakesAKeyOrAToken) {
  const std::string id = running();
  const std::string attach = "/v1/sandboxes/" + id + "/commands/" + kUnknown + "/attach";
  const Answer by_key = send("GET", attach);
  EXPECT_EQ(by_key.status, 200);
  EXPECT_NE(by_key.text.find("id: 1.3"), std::string::npos);
  key_ = "at_good";
  const Answer by_token = send("GET", attach);
  EXPECT_EQ(by_token.text, by_key.text);
  key_ = "at_expired";
  const Answer expired = send("GET", attach);
  EXPECT_EQ(expired.status, 410);
  EXPECT_EQ(expired.code(), "token_expired");
  key_ = "at_bad";
  EXPECT_EQ(send("GET", attach).code(), "token_invalid");
  EXPECT_EQ(send("GET", std::string("/v1/sandboxes/") + kUnknown + "/commands/" + kUnknown + "/attach").code(), "token_invalid")
      << "a token learns of no sandbox";
  key_ = "at_good";
  EXPECT_EQ(send("GET", "/v1/sandboxes/" + id + "/commands").status, 401) << "and opens nothing else";
}

TEST_F(ApiTest, ANodeThatIsAwayIsSaidToBe) {
  const std::string id = running();
  (void)run(loop_, [](testing::FakeNode& fake) -> Task<> {
    co_await fake.down();
    co_return Result<>();
  }(fake_));
  const Answer command = send("GET", "/v1/sandboxes/" + id + "/commands");
  EXPECT_EQ(command.status, 503) << command.text;
  EXPECT_EQ(command.code(), "node_unavailable");
  EXPECT_FALSE(text(command.body, "next").empty());
  EXPECT_EQ(command.headers.get("Retry-After"), "1");
  EXPECT_EQ(send("GET", "/v1/health").status, 503);
  EXPECT_EQ(send("GET", "/v1/templates").code(), "node_unavailable");
  const Answer version = send("GET", "/v1/version");
  EXPECT_EQ(version.status, 200);
  EXPECT_TRUE(version.body.at("driver").is_null());
  EXPECT_EQ(text(send("GET", "/v1/sandboxes/" + id).body, "state"), "running");
  const Answer removal = send_with("DELETE", "/v1/sandboxes/" + id, "", {{"Prefer", "wait=10"}});
  EXPECT_EQ(removal.status, 503);
  EXPECT_EQ(removal.code(), "node_unavailable");
  fake_.up();
}

TEST_F(ApiTest, VersionNamesTheDriver) {
  const Answer version = send("GET", "/v1/version");
  EXPECT_EQ(text(version.body, "version"), SPACE_VERSION);
  EXPECT_EQ(text(version.body, "driver"), "fake");
  EXPECT_EQ(text(version.body, "node"), "ok");
  EXPECT_NE(send("GET", "/metrics").text.find("space_requests_total{method=\"GET\",status=\"200\"}"), std::string::npos);
}

TEST_F(ApiTest, UnknownPathsAndMethods) {
  EXPECT_EQ(send("GET", "/v1/nothing").code(), "route_not_found");
  const Answer wrong = send("PUT", "/v1/sandboxes");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.headers.get("Allow").find("POST"), std::string_view::npos);
}

// Reads events until `count` have come.
Task<std::vector<http::SseEvent>> read_events(http::Client& client, http::Request request, std::size_t count) {
  CO_TRY(const auto stream, co_await client.open(std::move(request)));
  CO_TRY_VOID(co_await stream->finish_request());
  CO_TRY(const http::Response head, co_await stream->head());
  if (head.status != 200) co_return fail(ErrorKind::internal, "status", std::to_string(head.status), "");
  http::SseReader reader;
  std::vector<http::SseEvent> out;
  std::string buffer(4096, '\0');
  while (out.size() < count) {
    CO_TRY(const std::size_t got, co_await stream->read(std::as_writable_bytes(std::span(buffer))));
    if (got == 0) break;
    CO_TRY(auto events, reader.feed(std::string_view(buffer).substr(0, got)));
    for (auto& event : events) out.push_back(std::move(event));
  }
  co_return out;
}

TEST_F(ApiTest, EventsGoOnFromWhereTheReaderWas) {
  running();
  auto first = run(loop_, read_events(*client_, request("GET", "/v1/events?after=0"), 4));
  ASSERT_TRUE(first) << describe(first.error());
  std::vector<std::string> types;
  for (const auto& event : *first) types.push_back(event.event);
  EXPECT_EQ(types, (std::vector<std::string>{"key.created", "sandbox.creating", "sandbox.running", "operation.succeeded"}));
  running();
  http::Request again = request("GET", "/v1/events?after=0");
  again.headers.set("Last-Event-ID", first->at(2).id);
  auto second = run(loop_, read_events(*client_, std::move(again), 2));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->at(0).id, first->at(3).id) << "the header goes before the query: a browser keeps the URL and moves the header";
  EXPECT_EQ(second->at(1).event, "sandbox.creating");
  const Answer outside = send("GET", "/v1/events?after=999999");
  EXPECT_EQ(outside.status, 409);
  EXPECT_EQ(outside.code(), "outside_window");
  EXPECT_EQ(text(outside.body, "first"), "1");
  EXPECT_EQ(send("GET", "/v1/events?after=-1").code(), "invalid_event_id");
  EXPECT_EQ(send("GET", "/v1/events?after=1.5").code(), "invalid_event_id");
}

TEST_F(ApiTest, EventsArriveWhenTheyHappen) {
  std::optional<Result<std::vector<http::SseEvent>>> got;
  asio::co_spawn(loop_, read_events(*client_, request("GET", "/v1/events"), 1),
                 [&](std::exception_ptr, Result<std::vector<http::SseEvent>> events) { got = std::move(events); });
  spin(std::chrono::milliseconds(50));
  EXPECT_FALSE(got);
  send("POST", "/v1/sandboxes");
  for (int i = 0; i < 200 && !got; ++i) spin(std::chrono::milliseconds(5));
  ASSERT_TRUE(got && *got);
  EXPECT_EQ((*got)->at(0).event, "sandbox.creating");
}

TEST_F(ApiTest, AnOperationIsFollowedToItsEnd) {
  fake_.hold = true;
  const Answer made = send("POST", "/v1/sandboxes");
  const std::string target = "/v1/operations/" + text(made.at("operation"), "id") + "/events";
  std::optional<Result<std::vector<http::SseEvent>>> got;
  asio::co_spawn(loop_, read_events(*client_, request("GET", target), 99),
                 [&](std::exception_ptr, Result<std::vector<http::SseEvent>> events) { got = std::move(events); });
  spin(std::chrono::milliseconds(50));
  fake_.release();
  for (int i = 0; i < 400 && !got; ++i) spin(std::chrono::milliseconds(5));
  ASSERT_TRUE(got && *got) << (got ? describe(got->error()) : "");
  EXPECT_EQ((*got)->back().id, "3");
  EXPECT_NE((*got)->back().data.find("\"succeeded\""), std::string::npos);
  auto late = run(loop_, read_events(*client_, request("GET", target), 99));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->size(), 1u) << "who comes late sees the end";
}

}  // namespace
}  // namespace space::api
