// Publishing a checkpoint as a template: its disk alone is taken, and a base is made of that by booting it. Memory, devices and
// processes of the sandbox are never read. For node's loop.
//
// The generations of the disk are copied together by a VMM in a jail of its own that never runs a guest: they are bytes of a
// tenant, which no process of the host opens as an image. A kill at any moment leaves no template, or the whole one.
#pragma once

#include <set>
#include <string>

#include "base/async.h"
#include "base/clock.h"
#include "node/bases.h"
#include "node/vault.h"
#include "template/published.h"
#include "vmm/driver.h"

namespace space::node {

class Publisher {
 public:
  struct Parts {  // all outlive this
    const tmpl::TemplateStore& templates;
    const tmpl::TrustedTemplates& trusted;
    const tmpl::PublishedStore& published;
    BaseSource& bases;
    Vault& vault;
    vmm::Driver& driver;
    BlockingPool& disk;
    const Clock& clock;
  };
  Publisher(asio::any_io_executor executor, Parts parts) : parts_(std::move(parts)), changed_(std::move(executor)) {}

  struct Order {
    std::string operation;  // the same again is answered with what it made
    std::string tenant, checkpoint;
    std::string name, tag;
    std::optional<tmpl::RuntimeConfig> config;  // absent: as the template of the sandbox has it, with the sandbox's size
  };
  // Some seconds to minutes: its base is made, with its start and ready commands, before it has its name. Errors: not_found/
  // checkpoint_not_found, conflict/template_tag_exists, conflict/base_lost, template_not_ready, template_store_untrusted, blob_corrupt,
  // and those of files.
  Task<tmpl::Release> publish(Order order);

 private:
  struct Source;
  Task<std::shared_ptr<Source>> open_source(const Order& order);
  Task<> copy_disk(std::shared_ptr<Source> source, std::filesystem::path into);
  Task<tmpl::Release> make(Order order);

  Parts parts_;
  std::set<std::string> under_way_;  // name:tag
  Signal changed_;
  BlockingPool reading_{1};  // all of a disk: as long as it is large
};

}  // namespace space::node
