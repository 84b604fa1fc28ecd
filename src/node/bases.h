// From a template's name and a size to the base that machines are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "template/base_images.h"
#include "template/release.h"

namespace space::node {

struct WantedSize {  // absent: the template's own
  std::optional<std::uint32_t> cpus, memory_mib, disk_mib;
};

class BaseSource {
 public:
  virtual ~BaseSource() = default;
  virtual Task<tmpl::Release> resolve(const std::string& reference) = 0;
  virtual Task<std::shared_ptr<const tmpl::Base>> base(const tmpl::Release& release, const WantedSize& wanted) = 0;
};

std::unique_ptr<BaseSource> make_base_source(const tmpl::TemplateStore& templates, tmpl::BaseImages& images, BlockingPool& pool);

}  // namespace space::node
