#include "e2b/builds.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/encoding.h"
#include "e2b/request.h"

namespace space::e2b {
namespace {

constexpr std::int64_t kLinkLives_ms = 3'600'000;

bool is_word(std::string_view text, std::string_view more) {
  return !text.empty() && text.size() <= 64 && text.front() != '.' && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || more.find(c) != more.npos;
  });
}

// "ubuntu:22.04", "docker.io/library/python:3.11": the name and tag under which an operator imported it.
std::string image_template(std::string_view image) {
  const std::string whole = lower(image.substr(0, image.find('@')));
  const std::string last = whole.substr(whole.rfind('/') == whole.npos ? 0 : whole.rfind('/') + 1);
  if (whole == "e2bdev/base" || whole == "e2bdev/base:latest") return "base:latest";
  if (whole.starts_with("e2bdev/code-interpreter")) return "code-interpreter-v1:latest";
  return last.find(':') == last.npos ? last + ":latest" : last;
}

}  // namespace

Result<std::string> alias_tag(std::string_view text) {
  const std::string tag = lower(text);
  if (!is_word(tag, ".")) return invalid_request(fmt::format("'{}' is no tag of a template", is_utf8(text) ? text.substr(0, 100) : "?"));
  return tag;
}

Result<AliasName> alias_name(std::string_view text) {
  const auto wrong = [&] {
    return invalid_request(fmt::format("'{}' is not the name of a template", is_utf8(text) ? text.substr(0, 100) : "?"));
  };
  const std::string whole = lower(text);
  std::string_view rest = whole;
  if (const std::size_t slash = rest.find('/'); slash != rest.npos) {
    if (!is_word(rest.substr(0, slash), "")) return wrong();
    rest.remove_prefix(slash + 1);
  }
  const std::size_t colon = rest.find(':');
  AliasName out{std::string(rest.substr(0, colon)), ""};
  if (!is_word(out.name, "")) return wrong();
  if (colon != rest.npos) {
    TRY(out.tag, alias_tag(rest.substr(colon + 1)));
  }
  return out;
}

Result<build::Spec> read_build(State& state, const json::object& body) {
  JsonReader r(body);
  r.ignore_unknown();
  const std::string image = r.text("fromImage", 0, 512, ""), parent = r.text("fromTemplate", 0, 256, "");
  const json::array* steps = r.array("steps", build::kMostSteps);
  build::Spec spec;
  spec.start = r.text("startCmd", 0, build::kMostCommand, "");
  spec.ready = r.text("readyCmd", 0, build::kMostCommand, "");
  spec.force = r.boolean("force", false);
  TRY_VOID(r.done());
  if (image.empty() == parent.empty()) return invalid_request("exactly one of fromImage and fromTemplate must be given");
  if (const json::value* registry = body.if_contains("fromImageRegistry"); registry && !registry->is_null())
    return fail(ErrorKind::invalid_argument, "not_supported", "this server fetches no images, so it takes no credentials of a registry",
                "import the image with `space template build --image` and name that");
  if (!parent.empty()) {
    TRY(const std::string reference, template_reference(parent));
    spec.parent = resolve_alias(state, reference);
  } else {
    const std::string wanted = image_template(image);
    TRY(const AliasName name, alias_name(wanted));
    spec.parent = resolve_alias(state, name.name + ":" + name.tag);
  }
  if (steps) {
    TRY(spec.steps, build::read_steps(*steps));
  }
  // As E2B has it: a start command without a question gets 20 seconds.
  if (!spec.start.empty() && spec.ready.empty()) spec.ready = "sleep 20";
  return spec;
}

std::string resolve_alias(const State& state, const std::string& reference) {
  if (!state.parts.builds) return reference;
  const std::size_t colon = reference.find(':');
  std::string tag = reference.substr(colon + 1);
  if (tag == "latest") tag = "default";
  const auto found = state.parts.builds->aliases().find(reference.substr(0, colon), tag);
  return found ? found->reference : reference;
}

std::string shown_name(const State& state, const std::string& reference) {
  if (!state.parts.builds) return template_id_of(reference);
  return state.parts.builds->aliases().name_of(reference).value_or(template_id_of(reference));
}

std::string upload_token(const State& state, const std::string& tenant, const std::string& hash) {
  const std::string claim = fmt::format("{}.{}", tenant, state.parts.clock.wall_ms() + kLinkLives_ms);
  const Sha256 proof = hmac_sha256(state.link_key, as_bytes(claim + "." + hash));
  return claim + "." + hex_encode(proof);
}

std::optional<std::string> check_upload_token(const State& state, std::string_view token, const std::string& hash) {
  const std::size_t proof = token.rfind('.');
  if (token.size() > 256 || proof == token.npos || proof == 0) return std::nullopt;
  const std::string claim(token.substr(0, proof));
  const Sha256 expected = hmac_sha256(state.link_key, as_bytes(claim + "." + hash));
  if (!equal_constant_time(hex_encode(expected), token.substr(proof + 1))) return std::nullopt;
  const std::size_t dot = claim.rfind('.');
  if (dot == claim.npos || std::stoll(claim.substr(dot + 1)) < state.parts.clock.wall_ms()) return std::nullopt;
  return claim.substr(0, dot);
}

std::string build_uuid(std::string_view id) {
  const std::string hex = hex_encode(sha256(id));
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4), hex.substr(16, 4), hex.substr(20, 12));
}

bool is_signed_upload(const http::Exchange& exchange) {
  const auto& path = exchange.target().segments;
  return exchange.method() == "PUT" && path.size() == 4 && path[0] == "templates" && path[2] == "files" &&
         exchange.target().query_value("token").has_value();
}

}  // namespace space::e2b
