"""What the package shows to type checkers and editors; the module itself loads these names when first used."""

from wirespeed.apps.columns import Capture as Capture
from wirespeed.apps.columns import Columns as Columns
from wirespeed.apps.columns import read as read
from wirespeed.apps.flows import FlowCounter as FlowCounter
from wirespeed.apps.flows import count_flows as count_flows
from wirespeed.core.distributor.distributor import Distributor as Distributor
from wirespeed.core.distributor.statistics import DistributorStatistics as DistributorStatistics
from wirespeed.core.distributor.worker import DistributorWorker as DistributorWorker
from wirespeed.core.external import ExternalBuffer as ExternalBuffer
from wirespeed.core.frame import Packet as Packet
from wirespeed.core.packet_pool import PacketPool as PacketPool
from wirespeed.core.queue import Ring as Ring
from wirespeed.core.staged_ring import StagedRing as StagedRing
from wirespeed.core.view import PacketView as PacketView
from wirespeed.engine.distribute import distribute as distribute
from wirespeed.engine.function import DROP as DROP
from wirespeed.engine.function import FORWARD as FORWARD
from wirespeed.engine.function import Pkt as Pkt
from wirespeed.engine.function import checksum_ipv4 as checksum_ipv4
from wirespeed.engine.function import checksum_l4 as checksum_l4
from wirespeed.engine.function import decrement_ttl as decrement_ttl
from wirespeed.engine.function import function as function
from wirespeed.engine.function import pop_vlan as pop_vlan
from wirespeed.engine.function import push_vlan as push_vlan
from wirespeed.engine.function import random as random
from wirespeed.engine.function import rewrite as rewrite
from wirespeed.engine.function import symmetric_hash as symmetric_hash
from wirespeed.engine.report import Report as Report
from wirespeed.engine.report import StageReport as StageReport
from wirespeed.engine.report import WorkerReport as WorkerReport
from wirespeed.engine.run import interrupted as interrupted
from wirespeed.engine.run import run as run
from wirespeed.engine.run import start as start
from wirespeed.engine.running import Running as Running
from wirespeed.errors import FunctionError as FunctionError
from wirespeed.errors import GraphError as GraphError
from wirespeed.errors import PeerError as PeerError
from wirespeed.errors import PortError as PortError
from wirespeed.errors import WirespeedError as WirespeedError
from wirespeed.jit.layout import layout as layout
from wirespeed.observe.live import LiveTable as LiveTable
from wirespeed.ports import port as port

__version__: str
