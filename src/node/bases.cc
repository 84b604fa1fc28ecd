#include "node/bases.h"

#include <fmt/format.h>

namespace space::node {
namespace {

tl::unexpected<Error> base_lost(const KeptBase& wanted, std::string_view why) {
  return fail(ErrorKind::conflict, "base_lost", fmt::format("the base {} that this stands on {}", wanted.key.substr(0, 12), why),
              "bring the server's bases back from a backup, or delete it: neither its memory nor its disk can be read without");
}

class StoredBases : public BaseSource {
 public:
  StoredBases(tmpl::TrustedTemplates& templates, tmpl::BaseImages& images, BlockingPool& pool)
      : templates_(templates), images_(images), pool_(pool) {}

  Task<tmpl::Release> resolve(const std::string& reference) override {
    co_return co_await pool_.run([&] { return templates_.resolve(reference); });
  }

  Task<std::shared_ptr<const tmpl::Base>> base(const tmpl::Release& release, const WantedSize& wanted) override {
    const vmm::Size size{wanted.cpus.value_or(release.cpus), wanted.memory_mib.value_or(release.memory_mib),
                         wanted.disk_mib.value_or(release.disk_mib)};
    co_return co_await images_.get(release, size);
  }

  Task<std::vector<tmpl::BaseStatus>> status(const tmpl::Release& release) override { co_return co_await images_.status(release); }

  Task<std::shared_ptr<const tmpl::Base>> kept(const tmpl::Release& release, const KeptBase& wanted) override {
    const KeptBase asked = wanted;
    auto found = co_await images_.find(asked.key, release);
    if (!found && found.error().code != "base_not_found" && found.error().kind != ErrorKind::corrupt) co_return found;
    if (!found && !asked.content.empty())
      co_return base_lost(asked, found.error().kind == ErrorKind::corrupt ? "is damaged" : "is not here any more");
    if (!found) {
      // Of a record from before contents were noted. One that is made again has another content; nothing tells.
      found = co_await images_.get(release, asked.size);
      if (found && (*found)->key != asked.key) co_return base_lost(asked, "is not here any more");
      co_return found;
    }
    if (!asked.content.empty() && (*found)->content != asked.content) co_return base_lost(asked, "was lost and made again since");
    co_return found;
  }

 private:
  tmpl::TrustedTemplates& templates_;
  tmpl::BaseImages& images_;
  BlockingPool& pool_;
};

}  // namespace

std::unique_ptr<BaseSource> make_base_source(tmpl::TrustedTemplates& templates, tmpl::BaseImages& images, BlockingPool& pool) {
  return std::make_unique<StoredBases>(templates, images, pool);
}

}  // namespace space::node
