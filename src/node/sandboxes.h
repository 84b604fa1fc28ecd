// The table of this machine's sandboxes and what is done with them: create, delete, pause, resume, and their end.
//
// Each sandbox has a strand: its operations follow one another in the order in which they came, those of different sandboxes run
// side by side. A delete does not wait for a create to succeed: it marks the sandbox, the create gives up at its next step and
// takes away what it made, and the delete then finds nothing.
//
// What survives a kill -9 at any point (docs/states.md, recovery.h): a sandbox exists from the rename that publishes its folder to
// the rename that discards it. VMs that no published record names, and pool folders, are leftovers.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/clock.h"
#include "node/bases.h"
#include "node/events.h"
#include "node/pools.h"
#include "node/record.h"
#include "node/sandbox.h"

namespace space::node {

struct CreateRequest {
  std::string id;
  std::string operation;
  std::string tenant;
  std::string template_reference;
  WantedSize size;
  std::map<std::string, std::string> env;
  std::string hostname;  // "": made of the id
};

struct Done {
  SandboxRecord record;
  std::vector<Span> spans;
};

class Sandboxes {
 public:
  struct Parts {  // all outlive this
    Machines& machines;
    BaseSource& bases;
    Pools& pools;
    const RecordStore& records;
    BlockingPool& disk;
    Events& events;
    const Clock& clock;
  };
  Sandboxes(asio::any_io_executor executor, Parts parts, std::size_t most);

  // Idempotent by (id, operation). Errors: conflict/sandbox_exists, conflict/sandbox_deleted, resource_exhausted/node_full,
  // not_found/template_not_found, and whatever a step failed with; then nothing of the sandbox is left.
  Task<Done> create(CreateRequest request);
  Task<std::vector<Span>> remove(std::string id, std::string operation);  // an unknown id is a success
  Task<Done> pause(std::string id, std::string operation);
  Task<Done> resume(std::string id, std::string operation);

  // nullptr when there is none. Holding it keeps its machine's objects alive, not its VM.
  std::shared_ptr<Sandbox> find(std::string_view id) const;
  std::vector<SandboxRecord> list() const;

  // Recovery puts back what it found; `machine` empty: ended.
  std::shared_ptr<Sandbox> restore(SandboxRecord record, Machine machine);
  asio::awaitable<void> settle();  // waits until no operation is under way

 private:
  Task<Done> make(std::shared_ptr<Sandbox> sandbox, CreateRequest request, Spans& spans);
  Task<std::shared_ptr<const tmpl::Base>> base_for(std::shared_ptr<Sandbox> sandbox, CreateRequest request, Spans& spans);
  Task<Machine> paused_machine(std::shared_ptr<Sandbox> sandbox, std::shared_ptr<const tmpl::Base> base, bool pooled, Spans& spans);
  Task<> start(std::shared_ptr<Sandbox> sandbox, Spans& spans);
  asio::awaitable<void> undo(std::shared_ptr<Sandbox> sandbox);
  asio::awaitable<void> on_vmm_gone(std::shared_ptr<Sandbox> sandbox, std::string vm);
  Task<> tear_down(std::shared_ptr<Sandbox> sandbox, Spans& spans);
  Task<> store(const SandboxRecord& record);
  void own(const std::shared_ptr<Sandbox>& sandbox, Machine machine);
  void forget(const std::shared_ptr<Sandbox>& sandbox);
  void remember_deleted(const std::string& id);

  asio::any_io_executor executor_;
  Parts parts_;
  std::size_t most_;
  std::map<std::string, std::shared_ptr<Sandbox>, std::less<>> table_;
  // Ids that were deleted here lately: a create that arrives behind its delete must not bring the sandbox back.
  std::set<std::string, std::less<>> deleted_;
  std::deque<std::string> deleted_order_;
  std::size_t busy_ = 0;
  Signal idle_;
};

}  // namespace space::node
