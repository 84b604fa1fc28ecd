#include "template/sbom.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/file.h"

namespace space::tmpl {
namespace {

constexpr std::size_t kListedBytes = 8 << 20, kReleaseBytes = 64 << 10;

// The purl of a Debian package: the version's '+', '~' and ':' are escaped.
std::string purl(std::string_view name, std::string_view version, std::string_view architecture) {
  return fmt::format("pkg:deb/debian/{}@{}?arch={}", percent_encode(name), percent_encode(version), architecture);
}

json::object component(std::string_view name, std::string_view version, std::string_view architecture, std::string_view sha256) {
  const auto id = purl(name, version, architecture);
  return {{"type", "library"},  {"bom-ref", id}, {"name", name},
          {"version", version}, {"purl", id},    {"hashes", json::array{json::object{{"alg", "SHA-256"}, {"content", sha256}}}}};
}

// A UUID of version 8 (RFC 9562): the digest's own bits.
std::string serial_number(std::string_view digest) {
  std::string hex(digest.substr(digest.find(':') + 1, 32));
  hex[12] = '8';
  hex[16] = '8';
  return fmt::format("urn:uuid:{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4), hex.substr(16, 4),
                     hex.substr(20, 12));
}

}  // namespace

json::object bill_of_materials(const Release& release, const LockFile& lock, const KernelPackage& kernel) {
  json::array components;
  for (const auto& package : lock.packages)
    components.push_back(component(package.name, package.version, package.architecture, package.sha256));
  auto own = component(kernel.name, kernel.version, "amd64", kernel.sha256);
  own["description"] = "The guest's kernel and its modules; not a file of the root filesystem";
  components.push_back(std::move(own));

  const auto hex = release.digest.substr(release.digest.find(':') + 1);
  json::object subject{{"type", "operating-system"},
                       {"bom-ref", release.digest},
                       {"name", release.name},
                       {"version", release.tag},
                       {"hashes", json::array{json::object{{"alg", "SHA-256"}, {"content", hex}}}}};
  json::object out{
      {"bomFormat", "CycloneDX"},
      {"specVersion", "1.5"},
      {"serialNumber", serial_number(release.digest)},
      {"version", 1},
      {"metadata",
       json::object{{"timestamp", rfc3339(release.created_ms)},
                    {"tools", json::object{{"components", json::array{json::object{
                                                              {"type", "application"}, {"name", "space"}, {"version", SPACE_VERSION}}}}}},
                    {"component", std::move(subject)}}},
      {"components", std::move(components)}};
  if (!release.stands_on.empty())
    out["compositions"] = json::array{json::object{{"aggregate", "incomplete"}, {"assemblies", json::array{release.digest}}}};
  return out;
}

Result<json::object> bill_of_materials(const Release& release) {
  TRY(const auto text, read_file(release.rootfs.parent_path() / "lock", kListedBytes));
  TRY(const auto lock, parse_lock_file(text));
  TRY(const auto record_text, read_file(release.kernel.parent_path() / "kernel.json", kReleaseBytes));
  TRY(const auto record, parse_json_object(record_text));
  JsonReader r(record);
  KernelPackage kernel;
  kernel.name = r.text("package", 1, 200);
  kernel.version = r.text("version", 1, 100);
  kernel.sha256 = r.text("package_sha256", 64, 64);
  r.ignore_unknown();
  if (auto done = r.done(); !done)
    return fail(
        ErrorKind::corrupt, "template_corrupt",
        fmt::format("the record of kernel {} is damaged: {}", release.kernel.parent_path().filename().string(), done.error().message),
        fmt::format("remove the template with 'space template rm {}:{}' and build it again", release.name, release.tag));
  return bill_of_materials(release, lock, kernel);
}

}  // namespace space::tmpl
