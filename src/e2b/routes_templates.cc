// Templates as E2B shows them, and what of E2B this server does not do: each says so, and what to do in its place.
#include <fmt/format.h>

#include "e2b/builds.h"
#include "e2b/request.h"
#include "e2b/state.h"

namespace space::e2b {
namespace {

Task<json::object> ask_node(State& state, std::string target) {
  http::Request request;
  request.target = std::move(target);
  auto answer = co_await state.parts.node.forwarding().request(std::move(request), 4 << 20);
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  co_return parse_json_object(answer->body, 4 << 20);
}

// E2B's clients read a build's id as a UUID: the digest's first bits in that form.
std::string build_id(std::string_view digest) {
  std::string hex(digest.substr(digest.find(':') == std::string_view::npos ? 0 : digest.find(':') + 1));
  hex.resize(32, '0');
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4), hex.substr(16, 4), hex.substr(20, 12));
}

Result<json::object> render(const json::object& release) {
  JsonReader r(release, "template");
  r.ignore_unknown();
  const std::string name = r.text("name", 1, 128), tag = r.text("tag", 0, 128, ""), digest = r.text("digest", 1, 128),
                    created = r.text("created_at", 1, 40);
  const std::int64_t cpus = r.number("cpus", 1, 1024, 1), memory = r.number("memory_mib", 1, 1 << 24, 512),
                     disk = r.number("disk_mib", 1, 1 << 28, 4096);
  TRY_VOID(r.done());
  const std::string id = template_id_of(fmt::format("{}:{}", name, tag));
  return json::object{{"templateID", id},
                      {"buildID", build_id(digest)},
                      {"cpuCount", cpus},
                      {"memoryMB", memory},
                      {"diskSizeMB", disk},
                      {"public", true},
                      {"aliases", json::array{id}},
                      {"names", json::array{id}},
                      {"createdAt", created},
                      {"updatedAt", created},
                      {"createdBy", nullptr},
                      {"lastSpawnedAt", nullptr},
                      {"spawnCount", 0},
                      {"buildCount", 1},
                      {"envdVersion", kEnvdVersion},
                      {"buildStatus", "ready"}};
}

// A release that a build of a client's made is shown under the client's name, and once: as what its tag `default` means, or its first tag.
bool name_as_built(const State& state, json::object& shown) {
  const std::string reference(shown.at("templateID").as_string());
  if (!state.parts.builds || reference.find(":b-") == reference.npos) return true;
  const std::string name = reference.substr(0, reference.find(':'));
  const auto* tags = state.parts.builds->aliases().tags(name);
  if (!tags) return true;
  const auto usual = tags->find("default");
  const build::AliasTag& meant = usual == tags->end() ? tags->begin()->second : usual->second;
  if (meant.reference != reference) return false;
  shown["templateID"] = name;
  shown["aliases"] = json::array{name};
  shown["names"] = json::array{name};
  shown["buildID"] = build_uuid(meant.build);
  return true;
}

Task<> list_templates(State& state, http::Exchange& exchange) {
  CO_TRY(const json::object answer, co_await ask_node(state, "/v1/templates"));
  JsonReader r(answer);
  r.ignore_unknown();
  const json::array* items = r.array("templates", 10'000);
  CO_TRY_VOID(r.done());
  json::array out;
  if (items)
    for (const json::value& item : *items) {
      if (!item.is_object()) continue;
      CO_TRY(json::object one, render(item.get_object()));
      if (name_as_built(state, one)) out.push_back(std::move(one));
    }
  co_return co_await reply(exchange, 200, out);
}

Task<> alias(State& state, http::Exchange& exchange) {
  CO_TRY(const std::string reference, template_reference(exchange.param("alias")));
  auto found = co_await ask_node(state, "/v1/templates/" + resolve_alias(state, reference));
  if (!found && found.error().kind == ErrorKind::not_found)
    co_return fail(ErrorKind::not_found, "template_not_found", fmt::format("template '{}' not found", exchange.param("alias")));
  if (!found) co_return fail(std::move(found).error());
  const json::object out{{"templateID", template_id_of(reference)}, {"public", true}};
  co_return co_await reply(exchange, 200, out);
}

template <const char* const& kWhat>
Task<> missing(State&, http::Exchange&) {
  co_return fail(ErrorKind::invalid_argument, "not_supported", kWhat);
}

constexpr const char* kTeams = "this server knows API keys and no teams: set E2B_API_KEY in place of a login";

}  // namespace

void add_template_routes(State& state) {
  add(state, "GET", "/templates", list_templates);
  add(state, "GET", "/v2/templates", list_templates);
  add(state, "GET", "/templates/aliases/{alias}", alias);
}

void add_missing_routes(State& state) { add(state, "GET", "/teams", missing<kTeams>); }

}  // namespace space::e2b
