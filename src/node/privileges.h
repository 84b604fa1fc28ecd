// Giving up root for good.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

#include "base/result.h"

namespace space::node {

// Started as root with `uid` set: hands `folders` (made before) to that account and becomes it, with the group of the same number
// and no others. Otherwise does nothing. Blocks; before threads.
Result<> become(uid_t uid, const std::vector<std::filesystem::path>& folders);

}  // namespace space::node
