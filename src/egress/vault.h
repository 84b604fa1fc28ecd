// Secrets at rest: credentials of tenants and the keys of lineages' CAs, each sealed by AES-256-GCM with the store's key, which the
// parent alone has. What a sealed value belongs to is authenticated with it, so that files cannot be exchanged for each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "egress/sealing_key.h"
#include "base/secret.h"

namespace space::egress {

// `source`: "" for `default_file`, made with 32 random bytes when missing; a path; "env:NAME", taken out of the environment;
// "credential:NAME", a file below $CREDENTIALS_DIRECTORY (systemd.exec(5), LoadCredential=). 32 bytes, raw or as base64. Blocks.
Result<Secret> load_store_key(const std::string& source, const std::filesystem::path& default_file);

std::string seal(const Secret& key, std::string_view belongs_to, std::string_view plain);
Result<Secret> unseal(const Secret& key, std::string_view belongs_to, std::string_view sealed);  // `corrupt` when anything differs

class Vault {
 public:
  struct Credential {
    std::int64_t version = 0;
    std::int64_t updated_ms = 0;
    std::string sealed;
  };
  struct Lineage {
    std::string tenant;
    std::string certificate_pem;
    std::string sealed_key;
  };

  Vault(std::filesystem::path folder, Secret key) : folder_(std::move(folder)), key_(std::move(key)) {}
  Result<> open();  // reads everything, sealed; blocks. A wrong key is found here: unavailable/wrong_store_key
  const SealingKey& sealing_key() const { return sealing_; }  // made at the first start; after open()
  std::size_t size() const;                                   // credentials of all tenants

  // The index belongs to the loop; writing a file is a separate step that blocks and can run on a pool.
  Credential make_credential(const std::string& tenant, const std::string& name, std::string_view value, std::int64_t now_ms) const;
  Result<> write_credential(const std::string& tenant, const std::string& name, const Credential& credential) const;
  Result<> erase_credential(const std::string& tenant, const std::string& name) const;
  void keep(const std::string& tenant, const std::string& name, Credential credential) {
    credentials_[tenant][name] = std::move(credential);
  }
  void drop(const std::string& tenant, const std::string& name) { credentials_[tenant].erase(name); }
  const std::map<std::string, Credential>& credentials(const std::string& tenant) const;
  Result<Secret> reveal(const std::string& tenant, const std::string& name) const;

  Lineage make_lineage(const std::string& tenant, const std::string& lineage, std::string certificate_pem, std::string_view key_der) const;
  Result<> write_lineage(const std::string& lineage, const Lineage& record) const;
  Result<> erase_lineage(const std::string& lineage) const;
  void keep(const std::string& lineage, Lineage record) { lineages_[lineage] = std::move(record); }
  void drop_lineage(const std::string& lineage) { lineages_.erase(lineage); }
  const Lineage* lineage(const std::string& lineage) const;
  const std::map<std::string, Lineage>& lineages() const { return lineages_; }
  std::vector<std::string> lineages_of(const std::string& tenant) const;
  Result<Secret> reveal_lineage(const std::string& lineage) const;

 private:
  Result<> open_sealing_key();
  std::filesystem::path folder_;
  Secret key_;
  SealingKey sealing_;
  std::map<std::string, std::map<std::string, Credential>> credentials_;
  std::map<std::string, Lineage> lineages_;
};

// 8 to 8192 bytes without control bytes.
Result<> check_secret_value(std::string_view value);

}  // namespace space::egress
