#include "probe/sources.h"

#include <sys/stat.h>

#include <fstream>

#include "probe/machine.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using Catch::Contains;
using Catch::StartsWith;
using test::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("variables come from the environment, and below it from NCCL's files") {
  const TemporaryFolder root;
  write(root / "etc/nccl.conf", "# all\nNCCL_ALGO=Ring\n NCCL_DEBUG = INFO \nOTHER=1\nnonsense\n");
  write(root / "people/me/.nccl.conf", "NCCL_ALGO=Tree\n");
  const char* environment[] = {"HOME=/people/me", "NCCL_DEBUG=WARN", "A=b=c", "broken", nullptr};
  const Variables variables = read_variables(environment, root.path());
  CHECK(variables.at("A").value == "b=c");
  CHECK(variables.at("NCCL_DEBUG").value == "WARN");
  CHECK(variables.at("NCCL_DEBUG").file.empty());
  CHECK(variables.at("NCCL_ALGO").value == "Tree");
  CHECK(variables.at("NCCL_ALGO").file == "/people/me/.nccl.conf");
  CHECK(variables.count("OTHER") == 0);
  CHECK(variables.count("broken") == 0);
}

TEST_CASE("NCCL_CONF_FILE takes the place of the home folder's file") {
  const TemporaryFolder root;
  write(root / "etc/nccl.conf", "NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n");
  write(root / "opt/my.conf", "NCCL_ALGO=NVLS\n");
  write(root / "people/me/.nccl.conf", "NCCL_PROTO=LL\n");
  const char* environment[] = {"HOME=/people/me", "NCCL_CONF_FILE=/opt/my.conf", nullptr};
  const Variables variables = read_variables(environment, root.path());
  CHECK(variables.at("NCCL_ALGO").value == "NVLS");
  CHECK(variables.at("NCCL_DEBUG").file == "/etc/nccl.conf");
  CHECK(variables.count("NCCL_PROTO") == 0);
}

TEST_CASE("CPUs are those that the process is allowed") {
  const TemporaryFolder root;
  CHECK(read_cpu(root.path()).allowed == 0);
  write(root / "proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\n");
  CHECK(read_cpu(root.path()).allowed == 5);
  CHECK_FALSE(read_cpu(root.path()).quota);
}

TEST_CASE("the quota is the least of the control group's and those above it") {
  const TemporaryFolder root;
  write(root / "proc/self/cgroup", "0::/a/b\n");
  write(root / "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  CHECK_FALSE(read_cpu(root.path()).quota);
  write(root / "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  CHECK(read_cpu(root.path()).quota == 2.5);
  write(root / "sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  CHECK(read_cpu(root.path()).quota == 2.5);
  write(root / "sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
  CHECK(read_cpu(root.path()).quota == 1);
}

TEST_CASE("a container's own group may be mounted as the root of the tree") {
  const TemporaryFolder root;
  write(root / "proc/self/cgroup", "0::/docker/0123\n");
  write(root / "sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(read_cpu(root.path()).quota == 0.5);
  write(root / "proc/self/cgroup", "0::/\n");
  CHECK(read_cpu(root.path()).quota == 0.5);
  write(root / "proc/self/cgroup", "0::/../../elsewhere\n");
  CHECK(read_cpu(root.path()).quota == 0.5);
}

TEST_CASE("quotas of the first version of control groups count too") {
  const TemporaryFolder root;
  write(root / "proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/x\n");
  write(root / "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n");
  write(root / "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  CHECK(read_cpu(root.path()).quota == 3);
  write(root / "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
  CHECK_FALSE(read_cpu(root.path()).quota);
}

TEST_CASE("interfaces and adapters are read from the kernel's folders") {
  const TemporaryFolder root;
  CHECK_FALSE(read_network(root.path()).interfaces);
  CHECK(read_network(root.path()).fabric.empty());
  write(root / "sys/class/net/lo/operstate", "unknown\n");
  write(root / "sys/class/net/eth0/operstate", "down\n");
  const fs::path adapters = root / "sys/class/infiniband";
  write(adapters / "mlx5_0/ports/1/state", "4: ACTIVE\n");
  write(adapters / "mlx5_0/ports/1/link_layer", "InfiniBand\n");
  write(adapters / "mlx5_0/ports/2/state", "1: DOWN\n");
  write(adapters / "rdmap0/ports/1/state", "4: ACTIVE\n");
  write(adapters / "rdmap0/ports/1/link_layer", "Unspecified\n");
  fs::create_directories(adapters / "rdmap0/device");
  fs::create_symlink("../../../../bus/pci/drivers/efa", adapters / "rdmap0/device/driver");
  write(root / "dev/infiniband/uverbs0", "");
  write(root / "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max locked memory         65536                unlimited            bytes\n");
  const NetworkFacts facts = read_network(root.path());
  REQUIRE(facts.interfaces);
  REQUIRE(facts.interfaces->size() == 2);
  CHECK_FALSE(facts.interfaces->at(0).up);  // eth0
  CHECK(facts.interfaces->at(1).up);
  REQUIRE(facts.fabric.size() == 3);
  CHECK(facts.fabric[0].active);
  CHECK(facts.fabric[0].infiniband);
  CHECK_FALSE(facts.fabric[1].active);
  CHECK_FALSE(facts.fabric[2].infiniband);
  CHECK(facts.fabric[0].verbs);
  CHECK_FALSE(facts.fabric[2].verbs);
  CHECK(facts.has_efa());
  CHECK(facts.infiniband_active());
  CHECK(facts.verbs_devices);
  CHECK(facts.locked_memory_bytes == 65536);
  write(root / "proc/self/limits",
        "Max locked memory         unlimited            unlimited            bytes\n");
  CHECK_FALSE(read_network(root.path()).locked_memory_bytes);
}

TEST_CASE("IOMMU domain and ACS are those of the GPU and of the bridges above it") {
  const TemporaryFolder root;
  const fs::path bridge = root / "sys/devices/pci0000:00/0000:00:01.0", gpu = bridge / "0000:01:00.0";
  std::string config(4096, '\0');
  const auto put = [&](std::size_t at, std::uint32_t word) {
    for (int i = 0; i < 4; ++i) config[at + static_cast<std::size_t>(i)] = static_cast<char>(word >> (8 * i));
  };
  put(0x100, 0x14010001);             // errors; the next capability is at 0x140
  put(0x140, 0x0001000D);             // ACS, the last
  put(0x144, (0x1D << 16) | 0x001F);  // control: validation, requests, completions, upstream
  write(bridge / "config", config);
  write(gpu / "config", std::string(64, '\0'));
  write(root / "sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
  fs::create_symlink(root / "sys/kernel/iommu_groups/1", gpu / "iommu_group");
  fs::create_directories(root / "sys/bus/pci/devices");
  fs::create_symlink(gpu, root / "sys/bus/pci/devices/0000:01:00.0");
  const device::Inventory inventory = test::machine(1).gpus.inventory;  // at 01:00.0
  const auto read = [&] { return read_pci(root.path(), inventory).at(0); };
  CHECK(read().iommu_domain == "DMA-FQ");
  CHECK(read().acs_redirects == true);
  put(0x144, 0x001F);
  write(bridge / "config", config);
  CHECK(read().acs_redirects == false);
  write(bridge / "config", config.substr(0, 64));  // what others than root may see
  CHECK_FALSE(read().acs_redirects);
}

TEST_CASE("a list of capabilities that runs in circles, or out of the file, ends") {
  const TemporaryFolder root;
  const fs::path bridge = root / "sys/devices/pci0000:00/0000:00:01.0", gpu = bridge / "0000:01:00.0";
  write(gpu / "config", "");
  fs::create_directories(root / "sys/bus/pci/devices");
  fs::create_symlink(gpu, root / "sys/bus/pci/devices/0000:01:00.0");
  for (const std::string& header : {std::string("\x01\x00\x01\x10", 4), std::string("\x01\x00\xf1\xff", 4)}) {
    std::string config(300, '\0');
    config.replace(0x100, 4, header);
    write(bridge / "config", config);
    CHECK(read_pci(root.path(), test::machine(1).gpus.inventory).at(0).acs_redirects == false);
  }
}

TEST_CASE("a GPU that the kernel's tree lacks has no facts") {
  const TemporaryFolder root;
  const PciFacts facts = read_pci(root.path(), test::machine(1).gpus.inventory).at(0);
  CHECK(facts.iommu_domain.empty());
  CHECK_FALSE(facts.acs_redirects);
}

TEST_CASE("of an output folder that isn't there yet the nearest parent counts") {
  const TemporaryFolder folder;
  const FolderFacts facts = read_folder(folder / "a/b/c");
  CHECK(facts.problem.empty());
  CHECK(facts.free_bytes.value_or(0) > 0);
  write(folder / "file", "");
  CHECK_THAT(read_folder(folder / "file/runs").problem, Contains("is no folder"));
  std::filesystem::create_symlink(folder / "nowhere", folder / "link");
  for (const char* below : {"link", "link/runs"})
    CHECK_THAT(read_folder(folder / below).problem,
               Contains("is a link to") && Contains("which isn't there"));
}

TEST_CASE("what can be said of an output folder is said") {
  Sources sources = test::machine(0);
  const auto said = [&] { return test::only(sources, "output folder"); };
  CHECK(said() == "ok: 'runs/mine', 1.0 TiB free []");
  sources.output.kind = FolderFacts::Kind::kNetwork;
  sources.output.filesystem = "NFS";
  CHECK_THAT(said(), StartsWith("note: ") && Contains("network file system (NFS)"));
  for (const auto kind :
       {FolderFacts::Kind::kFuse, FolderFacts::Kind::kMemory, FolderFacts::Kind::kContainerLayer}) {
    sources.output.kind = kind;
    CHECK_THAT(said(), StartsWith("note: "));
  }
  sources.output.kind = FolderFacts::Kind::kLocal;
  sources.output.free_bytes = 100 << 20;
  CHECK_THAT(said(), StartsWith("warning: 'runs/mine' has only 100.0 MiB free"));
  sources.output.problem = "'/': Read-only file system";
  CHECK_THAT(said(), StartsWith("unfit: nothing can be written to 'runs/mine': '/': Read-only file system"));
}

TEST_CASE("the GPUs that a run takes are found in the inventory, each once") {
  const Sources sources = test::machine(3);
  RunNeeds needs;
  CHECK(used_gpus(sources.gpus.inventory, needs).empty());
  needs.devices = {sources.needs.devices[2], sources.needs.devices[0], sources.needs.devices[2], {}};
  CHECK(used_gpus(sources.gpus.inventory, needs) == std::vector<std::size_t>{0, 2});
}

TEST_CASE("this machine's sources can be read") {
  const Sources sources = read_sources({}, /*look_at_gpus=*/true);
  CHECK(sources.cpu.allowed > 0);
  CHECK(sources.variables.count("PATH") == 1);
  CHECK(sources.output.free_bytes.value_or(0) > 0);
  CHECK(sources.gpus.pci.size() == sources.gpus.inventory.gpus.size());
  CHECK(read_sources({}, /*look_at_gpus=*/false).gpus.inventory.gpus.empty());
}
