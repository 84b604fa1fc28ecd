// Keeps the pools to the templates that there are. Names of templates move on while a node runs: a release is built under `latest`, a
// kernel replaced, a tag removed. So the names that are to be ready are resolved anew when somebody publishes and every half minute; a new
// release gets its base and its ready VMs before the first create asks for them, and what no name leads to any more is given back then, and
// every ten minutes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/async.h"
#include "node/bases.h"
#include "node/pools.h"

namespace space::node {

// For node's loop. What it is given outlives its keep().
class PoolTemplates : public std::enable_shared_from_this<PoolTemplates> {
 public:
  using Listing = std::function<Task<std::vector<tmpl::Release>>()>;  // every name that there is: TemplateStore::list
  PoolTemplates(asio::any_io_executor executor, Pools& pools, BaseSource& bases, Listing list, std::vector<std::string> references)
      : pools_(pools), bases_(bases), list_(std::move(list)), references_(std::move(references)), changed_(std::move(executor)) {}

  asio::awaitable<void> keep();  // until stop()
  void look();                   // soon, and not only in its turn: somebody published or removed one
  void stop();

 private:
  using Names = std::vector<std::pair<std::string, tmpl::Release>>;
  asio::awaitable<Names> moved_names();
  asio::awaitable<void> drop_old();
  asio::awaitable<void> make_ready(const std::string& reference, const tmpl::Release& release);

  Pools& pools_;
  BaseSource& bases_;
  const Listing list_;
  const std::vector<std::string> references_;
  // What each name led to at the last look, nothing where there was none: a release is made ready once, and then left to its use.
  std::map<std::string, std::optional<tmpl::Release>> known_;
  Signal changed_;
  bool asked_ = false;
  bool stopping_ = false;
};

}  // namespace space::node
