// Templates and bases beside the sandboxes: what a release's bases are like, who needs what, and the removal of what nobody needs.
#pragma once

#include <vector>

#include "node/routes.h"
#include "template/base_images.h"
#include "template/needs.h"

namespace space::node {

// Sandboxes of the table and checkpoints of every tenant. Fails when one of them cannot be read: what it needs is not known then.
Task<std::vector<tmpl::Need>> all_needs(const Sandboxes& sandboxes, Vault& vault, BlockingPool& disk);

// "base" (the default size's state) and "bases" of a release's JSON.
void add_bases(json::object& release, const std::vector<tmpl::BaseStatus>& bases);

// Bases that no create would get any more and that nobody needs go, some seconds after the start and whenever something may have
// changed that. For a bases folder that no other server uses. Runs until `stopping`.
asio::awaitable<void> prune_bases(tmpl::BaseImages& images, const Sandboxes& sandboxes, Vault& vault, const tmpl::TemplateStore& templates,
                                  BlockingPool& disk, const bool& stopping);

}  // namespace space::node
