#include "cli/local_supply.h"

#include <fmt/format.h>

#include "base/file.h"
#include "cli/exit_status.h"
#include "template/build.h"
#include "template/sbom.h"
#include "template/signature.h"
#include "template/trusted_templates.h"

namespace space::cli {
namespace {

constexpr std::size_t kSbomBytes = 16 << 20;

int finish(Console& console, const Result<>& result) {
  if (result) return 0;
  console.error(result.error());
  return exit_status_of(result.error());
}

tmpl::TemplateStore store_of(const SupplyOptions& o) {
  return tmpl::TemplateStore(o.templates_dir.empty() ? o.data_dir / "templates" : o.templates_dir, o.data_dir / "node" / "templates");
}

Result<> sign(Console& console, const SupplyOptions& o) {
  const auto store = store_of(o);
  TRY(const auto release, store.resolve(o.reference));
  TRY(const auto key, tmpl::SigningKey::load(o.key));
  TRY_VOID(tmpl::sign_release(store, release, key));
  const auto signer = tmpl::to_string(key.public_key());
  if (console.as_json())
    console.value(json::object{{"name", release.name}, {"tag", release.tag}, {"digest", release.digest}, {"signer", signer}});
  else
    console.line(fmt::format("template {}:{} ({}) is signed by {}", release.name, release.tag, release.digest, signer));
  return {};
}

Result<> verify(Console& console, const SupplyOptions& o) {
  const auto store = store_of(o);
  tmpl::TrustPolicy policy;
  if (!o.trust.empty()) {
    TRY(policy, tmpl::read_trust_policy(o.trust));
  }
  const bool judged = !o.trust.empty();
  tmpl::TrustedTemplates trusted(store, std::move(policy));
  TRY(const auto release, trusted.resolve(o.reference));
  std::string signer;
  if (release.stands_on.empty()) {
    TRY(const auto signature, tmpl::read_signature(store, release));
    if (!signature && !judged)
      return fail(ErrorKind::unsupported, "template_unsigned", fmt::format("template {}:{} is not signed", release.name, release.tag),
                  fmt::format("sign it with 'space template sign {}:{} --key FILE'", release.name, release.tag));
    if (signature) signer = tmpl::to_string(signature->signer);
  }
  if (console.as_json())
    console.value(json::object{{"name", release.name},
                               {"tag", release.tag},
                               {"digest", release.digest},
                               {"signer", signer.empty() ? json::value() : json::value(signer)}});
  else
    console.line(fmt::format("template {}:{} ({}) is {}", release.name, release.tag, release.digest,
                             signer.empty() ? "not signed, and allowed by the policy" : "whole, and signed by " + signer));
  return {};
}

Result<> print_sbom(Console& console, const SupplyOptions& o) {
  TRY(const auto release, store_of(o).resolve(o.reference));
  TRY(auto bill, tmpl::bill_of_materials(release));
  console.value(std::move(bill));
  return {};
}

Result<> print_own_sbom(Console& console) {
  TRY(const auto file, tmpl::find_beside_program("space.cdx.json", {"space.cdx.json", "share/space/space.cdx.json"}));
  TRY(const auto text, read_file(file, kSbomBytes));
  TRY(auto bill, parse_json(text, kSbomBytes));
  console.value(std::move(bill));
  return {};
}

}  // namespace

int create_signing_key(Console& console, const std::filesystem::path& file) {
  const auto key = tmpl::SigningKey::create(file);
  if (!key) return finish(console, fail(key.error()));
  const auto name = tmpl::to_string(key->public_key());
  if (console.as_json())
    console.value(json::object{{"file", file.string()}, {"key", name}});
  else
    console.line(name);
  return 0;
}

int sign_template(Console& console, const SupplyOptions& options) { return finish(console, sign(console, options)); }
int verify_template(Console& console, const SupplyOptions& options) { return finish(console, verify(console, options)); }
int print_template_sbom(Console& console, const SupplyOptions& options) { return finish(console, print_sbom(console, options)); }
int print_program_sbom(Console& console) { return finish(console, print_own_sbom(console)); }

}  // namespace space::cli
