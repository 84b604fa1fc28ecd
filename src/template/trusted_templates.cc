#include "template/trusted_templates.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/log.h"
#include "template/layout.h"
#include "template/signature.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

tl::unexpected<Error> refuse(std::string_view code, std::string message, std::string next) {
  return fail(ErrorKind::unsupported, code, std::move(message), std::move(next));
}

// Changes whenever one of the files does: nobody sets a ctime.
std::string identity_of(const TemplateStore& store, const Release& release) {
  const Layout layout(store.root());
  const auto folder = release.rootfs.parent_path();
  std::string out;
  for (const auto& file : {signature_file(store, release), layout.tag(release.name, release.tag), folder / "release.json",
                           folder / "manifest", folder / "lock", release.rootfs, release.kernel, release.initramfs}) {
    struct stat st {};
    if (::stat(file.c_str(), &st) != 0) return {};
    out += fmt::format("{}:{}:{}:{}.{} ", st.st_dev, st.st_ino, st.st_size, st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
  }
  return out;
}

bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

Result<Release> TrustedTemplates::resolve(std::string_view reference) {
  TRY(auto release, store_.resolve(reference));
  auto fine = check(release);
  if (fine) return release;
  if (!reference.starts_with("sha256:")) return fail(std::move(fine).error());
  // A digest may have several names, and one of them may be signed.
  TRY(const auto all, store_.list());
  for (const auto& other : all)
    if (other.digest == reference && label_of(other) != label_of(release) && check(other)) return other;
  return fail(std::move(fine).error());
}

Result<> TrustedTemplates::may_publish() const {
  if (policy_.allow_published) return {};
  return refuse("template_store_untrusted", "this server's policy refuses templates that are made out of sandboxes",
                "whoever keeps the server allows them in its policy file with published = \"allow\"");
}

Result<> TrustedTemplates::check(const Release& release) {
  TRY_VOID(check_store(release));
  if (release.stands_on.empty()) return check_signature(release);
  if (!policy_.allow_published)
    return refuse("template_store_untrusted",
                  fmt::format("template {} was made out of a sandbox, and this server's policy refuses those", label_of(release)),
                  "use another template, or allow them in the server's policy file with published = \"allow\"");
  auto below = resolve(release.stands_on);
  if (!below && below.error().kind == ErrorKind::not_found && policy_.allow_unsigned)
    return {};  // its files stay without a name as long as this stands on them
  if (!below)
    return refuse(below.error().kind == ErrorKind::not_found ? "template_unsigned" : below.error().code,
                  fmt::format("template {} stands on one that is refused: {}", label_of(release), below.error().message),
                  below.error().next);
  return {};
}

Result<> TrustedTemplates::check_store(const Release& release) const {
  if (policy_.stores.empty()) return {};
  std::error_code error;
  const auto root = fs::weakly_canonical(store_.root(), error);
  if (!error && std::ranges::any_of(policy_.stores, [&](const fs::path& store) { return is_within(root, store); })) return {};
  return refuse("template_store_untrusted",
                fmt::format("template {} lies in {}, which this server's policy does not trust", label_of(release), store_.root().string()),
                "name the folder in stores of the policy file, or serve with a --templates-dir that it names");
}

Result<> TrustedTemplates::check_signature(const Release& release) {
  const auto label = label_of(release);
  const std::lock_guard lock(mutex_);
  const auto identity = identity_of(store_, release);
  if (const auto known = checked_.find(label); known != checked_.end() && !identity.empty() && known->second == identity) return {};
  checked_.erase(label);
  TRY(const auto signature, read_signature(store_, release));
  if (!signature) {
    if (!policy_.allow_unsigned)
      return refuse(
          "template_unsigned", fmt::format("template {} is not signed, and this server's policy demands it", label),
          fmt::format("sign it on the server's machine with 'space template sign {} --key FILE', with a key that the policy names", label));
    if (told_.insert(label).second)
      log::info("template.unsigned",
                {{"template", label}, {"digest", release.digest}, {"next", "docs/supply.md says how templates are signed"}});
    return {};
  }
  const auto signer = std::ranges::find(policy_.signers, signature->signer, &TrustPolicy::Signer::key);
  if (!policy_.signers.empty() && (signer == policy_.signers.end() || !signer->may_sign(release.name)))
    return refuse(
        "template_signer_untrusted",
        signer == policy_.signers.end()
            ? fmt::format("template {} is signed by {}, whom this server's policy does not name", label, to_string(signature->signer))
            : fmt::format("template {} is signed by '{}', who may not sign that name", label, signer->name),
        "name the signer in the server's policy file if it is to be trusted, or have the template signed by one who is");
  TRY_VOID(check_statement(*signature, release));
  log::info("template.verified",
            {{"template", label}, {"signer", signer == policy_.signers.end() ? to_string(signature->signer) : signer->name}});
  checked_[label] = identity;
  return {};
}

}  // namespace space::tmpl
