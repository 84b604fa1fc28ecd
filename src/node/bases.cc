#include "node/bases.h"

namespace space::node {
namespace {

class StoredBases : public BaseSource {
 public:
  StoredBases(const tmpl::TemplateStore& templates, tmpl::BaseImages& images, BlockingPool& pool)
      : templates_(templates), images_(images), pool_(pool) {}

  Task<tmpl::Release> resolve(const std::string& reference) override {
    co_return co_await pool_.run([&] { return templates_.resolve(reference); });
  }

  Task<std::shared_ptr<const tmpl::Base>> base(const tmpl::Release& release, const WantedSize& wanted) override {
    const vmm::Size size{wanted.cpus.value_or(release.cpus), wanted.memory_mib.value_or(release.memory_mib),
                         wanted.disk_mib.value_or(release.disk_mib)};
    co_return co_await images_.get(release, size);
  }

 private:
  const tmpl::TemplateStore& templates_;
  tmpl::BaseImages& images_;
  BlockingPool& pool_;
};

}  // namespace

std::unique_ptr<BaseSource> make_base_source(const tmpl::TemplateStore& templates, tmpl::BaseImages& images, BlockingPool& pool) {
  return std::make_unique<StoredBases>(templates, images, pool);
}

}  // namespace space::node
