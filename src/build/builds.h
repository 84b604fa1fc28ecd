// Building templates: what is accepted is recorded first and then carried out in the background, some at a time. A build that a kill
// interrupted is taken up again by the next process: its sandbox is removed, and it goes on from the layers that are kept.
// Everything here belongs to the role's loop; files are touched on the pool.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/clock.h"
#include "build/aliases.h"
#include "build/layers.h"
#include "build/record.h"
#include "build/uploads.h"
#include "control/egress.h"
#include "control/engine.h"
#include "control/node.h"
#include "control/store.h"
#include "http/server.h"

namespace space::build {

struct BuildLimits {
  std::chrono::milliseconds build = std::chrono::hours(1), step = std::chrono::minutes(20);
  std::size_t running = 2, waiting = 100;  // builds at once; more: resource_exhausted/too_many_builds
  std::size_t log_lines = 10'000, log_bytes = 2 << 20;
  std::size_t layers = 48;  // kept a tenant
  std::size_t kept = 500;   // finished builds that can be looked at
};

struct BuildParts {  // all outlive the Builds
  asio::any_io_executor executor;
  control::Store& store;
  control::Engine& engine;
  control::Node& node;
  control::Egress* egress;  // nullptr: builds have no network
  const Clock& clock;
  std::filesystem::path root;  // builds/ and uploads/ are made in it
};

struct Live;  // a build under way (run.h)

class Builds {
 public:
  Builds(BuildParts parts, BuildLimits limits = {});
  ~Builds();
  Task<> start();  // takes up what an earlier process left
  void stop();     // lets go of what is under way; the next start takes it up

  struct Wanted {
    std::string tenant, name, tag;
    std::string alias_tags;
    std::optional<std::int64_t> cpus, memory_mib;
  };
  // Recorded, durably, when it returns. conflict/template_tag_exists; invalid_argument/template_reference; too_many_builds.
  Task<Build> create(Wanted wanted);                                 // waiting for its steps
  Task<Build> begin(std::string tenant, std::string id, Spec spec);  // conflict/build_begun unless it waits
  // Of the tenant's own; build_not_found.
  Result<Build> find(const std::string& tenant, const std::string& id) const;
  std::vector<Build> list(const std::string& tenant) const;  // newest first
  Task<Build> cancel(std::string tenant, std::string id);
  // From the entry of that number; waits for one for up to `wait` while the build is not over.
  Task<std::vector<LogEntry>> log(std::string tenant, std::string id, std::size_t from, std::size_t most, std::chrono::milliseconds wait);
  // A checkpoint of the tenant's, or of a running sandbox what it is now, as name:tag. Answers when the template is there.
  struct Publish {
    std::string operation, tenant, sandbox, checkpoint, name, tag;
  };
  Task<json::object> publish(Publish wanted);

  // A request's body as an upload (uploads.h says what `is_digest` means); durable when it returns.
  Task<> receive(http::Exchange& exchange, std::string tenant, std::string name, bool is_digest);

  // Layers that stand on a template, before it is removed: they would keep it. What goes wrong is logged; the removal then tells.
  asio::awaitable<void> forget_layers_on(std::string tenant, std::string reference);

  Uploads& uploads() { return uploads_; }
  BlockingPool& pool() { return pool_; }
  Aliases& aliases() { return aliases_; }

 private:
  friend class Run;
  Result<> admit(const std::string& tenant) const;
  void pump();
  asio::awaitable<void> carry_out(std::string id);
  asio::awaitable<void> keep_time(std::shared_ptr<Live> live);
  asio::awaitable<void> tidy_loop();
  Task<> remove_leftovers();
  Task<> save(Build build);
  Task<> flush(std::shared_ptr<Live> live);
  Task<> forget_surplus();
  Task<> remove_sandbox(std::string tenant, std::string sandbox);
  Task<control::Operation> wait_for(std::string tenant, std::string operation);
  Task<std::string> take_checkpoint(std::string tenant, std::string sandbox, std::string name);
  Task<> forget_checkpoint(std::string tenant, std::string checkpoint);
  Task<json::object> publish_order(json::object order);
  Task<json::object> ask(std::string tenant, std::string method, std::string target);

  BuildParts parts_;
  BuildLimits limits_;
  BlockingPool pool_{2};
  BuildFiles files_;
  Uploads uploads_;
  Layers layers_;
  Aliases aliases_;
  std::map<std::string, Build> builds_;
  std::map<std::string, std::shared_ptr<Live>> live_;
  std::deque<std::string> queue_;
  std::size_t running_ = 0;
  bool stopping_ = false;
  bool tidied_ = false;  // what an earlier process left is gone: builds may run
  Signal stopped_;
};

Error build_not_found();

}  // namespace space::build
