// `space volume`: volumes are sandboxes with labels of the server's own (docs/e2b.md), so they are listed and deleted as such.
#pragma once

#include <string>
#include <vector>

#include "cli/client.h"

namespace space::cli {

Task<int> create_volume(Context& context, std::string name);
Task<int> list_volumes(Context& context);
// By name or id. volume_not_found: nothing that is no volume is ever deleted by this.
Task<int> remove_volumes(Context& context, std::vector<std::string> volumes);

}  // namespace space::cli
