#include "egress/vault.h"

#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <openssl/evp.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "egress/binding.h"
#include "wire/egress_handover.h"

namespace space::egress {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kKeyBytes = 32, kNonceBytes = 12, kTagBytes = 16;
constexpr std::size_t kLongestFile = 1 << 20;
constexpr std::string_view kMagic = "space egress store 1";

struct CipherFree {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, CipherFree>;

const unsigned char* octets(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

std::string credential_label(const std::string& tenant, const std::string& name, std::int64_t version) {
  return fmt::format("credential/{}/{}/{}", tenant, name, version);
}
std::string lineage_label(const std::string& tenant, const std::string& lineage) { return fmt::format("lineage/{}/{}", tenant, lineage); }

tl::unexpected<Error> bad_key(std::string why) {
  return fail(ErrorKind::invalid_argument, "bad_store_key", "the key of the credential store " + std::move(why),
              "give 32 random bytes, octets or as base64: openssl rand -base64 32");
}

Result<Secret> key_of(std::string& text) {
  auto whole = [&]() -> Result<Secret> {
    if (text.size() == kKeyBytes) return Secret(text);
    std::string_view trimmed = text;
    while (!trimmed.empty() && (trimmed.back() == '\n' || trimmed.back() == '\r' || trimmed.back() == ' ')) trimmed.remove_suffix(1);
    auto decoded = base64_decode(trimmed);
    if (!decoded || decoded->size() != kKeyBytes) return bad_key("is not 32 bytes long");
    Secret key(*decoded);
    wipe_string(*decoded);
    return key;
  };
  auto key = whole();
  wipe_string(text);
  return key;
}

Result<json::object> read_object(const fs::path& file) {
  TRY(const std::string text, read_file(file, kLongestFile));
  return parse_json_object(text, kLongestFile);
}

Result<std::string> base64_field(JsonReader& reader, std::string_view name) {
  const std::string text = reader.text(name, 1, kLongestFile);
  auto bytes = base64_decode(text);
  if (!bytes) return fail(ErrorKind::corrupt, "bad_record", fmt::format("{} is not base64", name));
  return *bytes;
}

}  // namespace

Result<> check_secret_value(std::string_view value) {
  auto bad = [](std::string_view why) {
    return fail(ErrorKind::invalid_argument, "invalid_credential", fmt::format("the value {}", why),
                "send the secret itself as the body, without a line end");
  };
  if (value.size() < 8 || value.size() > 8192) return bad("must have 8 to 8192 bytes");
  for (char c : value)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return bad("holds a control byte, such as a line end");
  if (value.front() == ' ' || value.back() == ' ') return bad("begins or ends with a space");
  return {};
}

Result<Secret> load_store_key(const std::string& source, const fs::path& default_file) {
  std::string text;
  if (source.starts_with("env:")) {
    const std::string name = source.substr(4);
    const char* value = std::getenv(name.c_str());
    if (!value) return bad_key(fmt::format("is not in the environment as {}", name));
    text = value;
    ::unsetenv(name.c_str());
    return key_of(text);
  }
  fs::path file = source.empty() ? default_file : fs::path(source);
  if (source.starts_with("credential:")) {
    const char* folder = std::getenv("CREDENTIALS_DIRECTORY");
    if (!folder) return bad_key("was to come from systemd, which gave no credentials");
    const std::string name = source.substr(11);
    if (name.empty() || name.find('/') != std::string::npos) return bad_key("has no name among systemd's credentials");
    file = fs::path(folder) / name;
  }
  auto content = read_file(file, 4096);
  if (!content && content.error().kind == ErrorKind::not_found && source.empty()) {
    Secret fresh(kKeyBytes);
    random_bytes(fresh.bytes());
    std::string encoded = base64_encode(fresh.bytes()) + "\n";
    const auto written = write_file_durable(file, encoded, 0400);
    wipe_string(encoded);
    TRY_VOID(written);
    return fresh;
  }
  if (!content) return fail(std::move(content).error());
  return key_of(*content);
}

std::string seal(const Secret& key, std::string_view belongs_to, std::string_view plain) {
  std::string out(kNonceBytes + plain.size() + kTagBytes, '\0');
  auto* bytes = reinterpret_cast<unsigned char*>(out.data());
  random_bytes({reinterpret_cast<std::byte*>(out.data()), kNonceBytes});
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int n = 0;
  const bool done = cipher && EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, octets(key.view()), bytes) == 1 &&
                    EVP_EncryptUpdate(cipher.get(), nullptr, &n, octets(belongs_to), static_cast<int>(belongs_to.size())) == 1 &&
                    EVP_EncryptUpdate(cipher.get(), bytes + kNonceBytes, &n, octets(plain), static_cast<int>(plain.size())) == 1 &&
                    EVP_EncryptFinal_ex(cipher.get(), bytes + kNonceBytes + n, &n) == 1 &&
                    EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, bytes + kNonceBytes + plain.size()) == 1;
  if (!done) {
    log::error("egress.seal_failed");
    std::abort();  // a cipher that does not work is no state to go on in
  }
  return out;
}

Result<Secret> unseal(const Secret& key, std::string_view belongs_to, std::string_view sealed) {
  auto wrong = [] {
    return fail(ErrorKind::corrupt, "cannot_unseal", "a sealed value does not fit the key of the store, or was changed",
                "start with the key that the store was made with");
  };
  if (sealed.size() < kNonceBytes + kTagBytes) return wrong();
  Secret out(sealed.size() - kNonceBytes - kTagBytes);
  auto* bytes = reinterpret_cast<unsigned char*>(out.bytes().data());
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int n = 0;
  const bool done = cipher && EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, octets(key.view()), octets(sealed)) == 1 &&
                    EVP_DecryptUpdate(cipher.get(), nullptr, &n, octets(belongs_to), static_cast<int>(belongs_to.size())) == 1 &&
                    EVP_DecryptUpdate(cipher.get(), bytes, &n, octets(sealed) + kNonceBytes, static_cast<int>(out.bytes().size())) == 1 &&
                    EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
                    EVP_DecryptFinal_ex(cipher.get(), bytes + n, &n) == 1;
  if (!done) return wrong();
  return out;
}

Result<> Vault::open() {
  TRY_VOID(make_directories(folder_ / "credentials", 0700));
  TRY_VOID(make_directories(folder_ / "lineages", 0700));
  // A value sealed at the first start tells a wrong key before anything is lost with it.
  const fs::path check = folder_ / "key.check";
  auto known = read_file(check, 4096);
  if (known) {
    if (!unseal(key_, "key.check", *known))
      return fail(ErrorKind::unavailable, "wrong_store_key", "the credential store was made with another key",
                  "start with the key that the store was made with");
  } else if (known.error().kind == ErrorKind::not_found) {
    TRY_VOID(write_file_durable(check, seal(key_, "key.check", kMagic)));
  } else {
    return fail(std::move(known).error());
  }
  TRY_VOID(open_sealing_key());
  TRY(const auto tenants, list_directory(folder_ / "credentials"));
  for (const std::string& tenant : tenants) {
    if (!wire::is_tenant(tenant)) continue;
    TRY(const auto files, list_directory(folder_ / "credentials" / tenant));
    for (const std::string& file : files) {
      const std::string name = file.substr(0, file.size() - std::min<std::size_t>(5, file.size()));
      if (!file.ends_with(".json") || !is_credential_name(name)) continue;
      auto read = [&]() -> Result<Credential> {
        TRY(const json::object object, read_object(folder_ / "credentials" / tenant / file));
        JsonReader reader(object);
        Credential c;
        c.version = reader.number("version", 1, INT64_MAX / 2);
        c.updated_ms = reader.number("updated_ms", 0, INT64_MAX / 2);
        TRY(c.sealed, base64_field(reader, "sealed"));
        TRY_VOID(reader.done());
        return c;
      };
      auto credential = read();
      if (credential)
        credentials_[tenant][name] = std::move(*credential);
      else
        log::error("egress.bad_credential", {{"tenant", tenant}, {"name", name}, {"error", credential.error()}});
    }
  }
  TRY(const auto lineages, list_directory(folder_ / "lineages"));
  for (const std::string& file : lineages) {
    const std::string lineage = file.substr(0, file.size() - std::min<std::size_t>(5, file.size()));
    if (!file.ends_with(".json") || !is_id(lineage)) continue;
    auto read = [&]() -> Result<Lineage> {
      TRY(const json::object object, read_object(folder_ / "lineages" / file));
      JsonReader reader(object);
      Lineage record;
      record.tenant = reader.text("tenant", 1, 64);
      record.certificate_pem = reader.text("certificate", 1, 65536);
      TRY(record.sealed_key, base64_field(reader, "sealed"));
      TRY_VOID(reader.done());
      return record;
    };
    auto record = read();
    if (record)
      lineages_[lineage] = std::move(*record);
    else
      log::error("egress.bad_lineage", {{"lineage", lineage}, {"error", record.error()}});
  }
  return {};
}

Result<> Vault::open_sealing_key() {
  const fs::path file = folder_ / "sealing.key";
  const auto known = read_file(file, 4096);
  if (known) {
    TRY(const Secret opened, unseal(key_, "sealing.key", *known));
    TRY(sealing_, SealingKey::load(opened));
    return {};
  }
  if (known.error().kind != ErrorKind::not_found) return fail(known.error());
  TRY(sealing_, SealingKey::make());
  return write_file_durable(file, seal(key_, "sealing.key", sealing_.private_key().view()));
}

std::size_t Vault::size() const {
  std::size_t count = 0;
  for (const auto& [tenant, known] : credentials_) count += known.size();
  return count;
}

Vault::Credential Vault::make_credential(const std::string& tenant, const std::string& name, std::string_view value,
                                         std::int64_t now_ms) const {
  const auto& known = credentials(tenant);
  const auto found = known.find(name);
  Credential c;
  c.version = found == known.end() ? 1 : found->second.version + 1;
  c.updated_ms = now_ms;
  c.sealed = seal(key_, credential_label(tenant, name, c.version), value);
  return c;
}

Result<> Vault::write_credential(const std::string& tenant, const std::string& name, const Credential& c) const {
  TRY_VOID(make_directories(folder_ / "credentials" / tenant, 0700));
  const json::object object{{"version", c.version}, {"updated_ms", c.updated_ms}, {"sealed", base64_encode(as_bytes(c.sealed))}};
  return write_file_durable(folder_ / "credentials" / tenant / (name + ".json"), json::serialize(object));
}

Result<> Vault::erase_credential(const std::string& tenant, const std::string& name) const {
  const fs::path folder = folder_ / "credentials" / tenant;
  if (::unlink((folder / (name + ".json")).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove a credential");
  if (auto synced = sync_directory(folder); !synced && synced.error().kind != ErrorKind::not_found) return synced;
  return {};
}

const std::map<std::string, Vault::Credential>& Vault::credentials(const std::string& tenant) const {
  static const std::map<std::string, Credential> none;
  const auto found = credentials_.find(tenant);
  return found == credentials_.end() ? none : found->second;
}

Result<Secret> Vault::reveal(const std::string& tenant, const std::string& name) const {
  const auto& known = credentials(tenant);
  const auto found = known.find(name);
  if (found == known.end()) return fail(ErrorKind::not_found, "credential_not_found", "there is no such credential");
  return unseal(key_, credential_label(tenant, name, found->second.version), found->second.sealed);
}

Vault::Lineage Vault::make_lineage(const std::string& tenant, const std::string& lineage, std::string certificate_pem,
                                   std::string_view key_der) const {
  return {tenant, std::move(certificate_pem), seal(key_, lineage_label(tenant, lineage), key_der)};
}

Result<> Vault::write_lineage(const std::string& lineage, const Lineage& record) const {
  const json::object object{
      {"tenant", record.tenant}, {"certificate", record.certificate_pem}, {"sealed", base64_encode(as_bytes(record.sealed_key))}};
  return write_file_durable(folder_ / "lineages" / (lineage + ".json"), json::serialize(object));
}

Result<> Vault::erase_lineage(const std::string& lineage) const {
  if (::unlink((folder_ / "lineages" / (lineage + ".json")).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove a CA");
  return sync_directory(folder_ / "lineages");
}

const Vault::Lineage* Vault::lineage(const std::string& lineage) const {
  const auto found = lineages_.find(lineage);
  return found == lineages_.end() ? nullptr : &found->second;
}

std::vector<std::string> Vault::lineages_of(const std::string& tenant) const {
  std::vector<std::string> out;
  for (const auto& [lineage, record] : lineages_)
    if (record.tenant == tenant) out.push_back(lineage);
  return out;
}

Result<Secret> Vault::reveal_lineage(const std::string& lineage) const {
  const Lineage* record = this->lineage(lineage);
  if (!record) return fail(ErrorKind::not_found, "lineage_not_found", "there is no CA of this lineage");
  return unseal(key_, lineage_label(record->tenant, lineage), record->sealed_key);
}

}  // namespace space::egress
