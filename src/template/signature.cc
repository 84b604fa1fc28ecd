#include "template/signature.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "template/image.h"
#include "template/layout.h"
#include "template/publish.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kHead = "space-template-signature 1\n";
constexpr std::string_view kSigner = "\nsigner ", kSignature = "\nsignature ";

tl::unexpected<Error> unreadable(std::string_view label, std::string_view what) {
  return fail(ErrorKind::unsupported, "template_signature", fmt::format("the signature of template {} {}", label, what),
              fmt::format("bring the template from where it was signed once more, or sign it here with 'space template sign {}'", label));
}

tl::unexpected<Error> altered(std::string_view label, std::string_view part) {
  return fail(ErrorKind::unsupported, "template_altered",
              fmt::format("template {} is not what was built and signed: its {} is another", label, part),
              fmt::format("find out who changed it; then remove it with 'space template rm {}' and bring or build it again", label));
}

Result<std::string> digest_of(const fs::path& file) {
  TRY(const Fd fd, open_file(file, O_RDONLY));
  TRY(const Sha256 digest, sha256_of_file(fd));
  return digest_name(digest);
}

Result<std::string> digest_of_modules(const fs::path& folder) {
  TRY(const auto names, list_directory(folder));
  std::string all;
  for (const auto& name : names) {
    TRY(const auto digest, digest_of(folder / name));
    all += fmt::format("{} {}\n", percent_encode(name), digest);
  }
  return digest_name(sha256(all));
}

RuntimeConfig config_of(const Release& r) { return {r.cpus, r.memory_mib, r.disk_mib, r.env, r.user, r.workdir, r.start, r.ready}; }

// What there is to sign, from the files. That they are those of the build is looked at on the way: a digest that is only claimed in
// release.json is worth nothing.
Result<std::string> statement_of(const Release& release) {
  const auto label = label_of(release);
  const auto folder = release.rootfs.parent_path();
  const auto kernel = release.kernel.parent_path();
  TRY(const auto record, digest_of(folder / "release.json"));
  TRY(const auto manifest, digest_of(folder / "manifest"));
  if (release_digest(manifest, config_of(release)) != release.digest) return altered(label, "manifest or release.json");
  TRY(const auto lock, digest_of(folder / "lock"));
  TRY(const auto vmlinux, digest_of(release.kernel));
  TRY(const auto modules, digest_of_modules(kernel / "modules"));
  TRY(const auto image, digest_of_image(release.rootfs));
  if (image != release.image_digest) return altered(label, "rootfs.ext4");
  return fmt::format("{}template {}\ndigest {}\nrelease.json {}\nmanifest {}\nlock {}\nrootfs.ext4 {}\nkernel {}\nvmlinux {}\nmodules {}",
                     kHead, label, release.digest, record, manifest, lock, image, kernel.filename().string(), vmlinux, modules);
}

// The first word of the first line in which the two differ.
std::string difference(std::string_view one, std::string_view other) {
  while (!one.empty() || !other.empty()) {
    const auto a = one.substr(0, one.find('\n')), b = other.substr(0, other.find('\n'));
    if (a != b) return std::string(b.substr(0, b.find(' ')));
    one.remove_prefix(std::min(one.size(), a.size() + 1));
    other.remove_prefix(std::min(other.size(), b.size() + 1));
  }
  return "statement";
}

}  // namespace

fs::path signature_file(const TemplateStore& store, const Release& release) {
  return Layout(store.root()).signature(release.name, release.tag);
}

Result<Signature> parse_signature(std::string_view text, std::string_view label) {
  const auto last = text.rfind(kSignature);
  if (!text.starts_with(kHead) || last == text.npos || !text.ends_with('\n'))
    return unreadable(label, "is cut, or no text that SPACE wrote");
  const auto hex = text.substr(last + kSignature.size(), text.size() - last - kSignature.size() - 1);
  const auto signature = hex_decode(hex);
  const auto statement = text.substr(0, last);
  const auto signer = statement.rfind(kSigner);
  const auto key = signer == statement.npos ? std::nullopt : parse_public_key(statement.substr(signer + kSigner.size()));
  if (!signature || hex_encode(as_bytes(*signature)) != hex || !key) return unreadable(label, "names no Ed25519 key and signature");
  if (!is_signed(statement, *signature, *key)) return unreadable(label, "is not that of the key it names");
  return Signature{std::string(statement), *key};
}

Result<std::optional<Signature>> read_signature(const TemplateStore& store, const Release& release) {
  auto text = read_file(signature_file(store, release), kSignatureFileBytes);
  if (!text && text.error().kind == ErrorKind::not_found) return std::nullopt;
  if (!text && text.error().kind == ErrorKind::too_large) return unreadable(label_of(release), "is too long");
  if (!text) return fail(std::move(text).error());
  TRY(auto signature, parse_signature(*text, label_of(release)));
  return std::optional(std::move(signature));
}

Result<> check_statement(const Signature& signature, const Release& release) {
  TRY(const auto found, statement_of(release));
  const auto expected = fmt::format("{}{}{}", found, kSigner, to_string(signature.signer));
  if (signature.statement != expected) return altered(label_of(release), difference(signature.statement, expected));
  return {};
}

Result<> sign_release(const TemplateStore& store, const Release& release, const SigningKey& key) {
  if (!release.stands_on.empty())
    return fail(ErrorKind::invalid_argument, "template_reference",
                fmt::format("template {} was published by a server out of a sandbox, and such are not signed", label_of(release)),
                "sign what it stands on, and let the policy say published = \"allow\" (docs/supply.md)");
  TRY(const auto lock, Layout(store.root()).lock());
  TRY(const auto parts, statement_of(release));
  const auto statement = fmt::format("{}{}{}", parts, kSigner, to_string(key.public_key()));
  return write_file_durable(signature_file(store, release),
                            fmt::format("{}{}{}\n", statement, kSignature, hex_encode(as_bytes(key.sign(statement)))), 0644);
}

}  // namespace space::tmpl
