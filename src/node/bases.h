// From a template's name and a size to the base that machines are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "template/base_images.h"
#include "template/trusted_templates.h"

namespace space::node {

struct WantedSize {  // absent: the template's own
  std::optional<std::uint32_t> cpus, memory_mib, disk_mib;
};

// Which base a sandbox or a checkpoint stands on.
struct KeptBase {
  std::string key, content;  // content "": not known
  vmm::Size size;            // of the sandbox
};

class BaseSource {
 public:
  virtual ~BaseSource() = default;
  virtual Task<tmpl::Release> resolve(const std::string& reference) = 0;
  virtual Task<std::shared_ptr<const tmpl::Base>> base(const tmpl::Release& release, const WantedSize& wanted) = 0;
  virtual Task<std::vector<tmpl::BaseStatus>> status(const tmpl::Release& /*release*/) { co_return std::vector<tmpl::BaseStatus>{}; }
  // That very base, also when a create would get another one now. conflict/base_lost: it is gone, damaged, or was made again since;
  // what stood on it cannot be read any more.
  virtual Task<std::shared_ptr<const tmpl::Base>> kept(const tmpl::Release& release, const KeptBase& wanted) {
    const WantedSize size{wanted.size.cpus, wanted.size.memory_mib, wanted.size.disk_mib};
    co_return co_await base(release, size);
  }
};

std::unique_ptr<BaseSource> make_base_source(tmpl::TrustedTemplates& templates, tmpl::BaseImages& images, BlockingPool& pool);

}  // namespace space::node
