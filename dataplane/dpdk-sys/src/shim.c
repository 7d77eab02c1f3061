/* What Rust cannot call or read of DPDK by itself: its static inline functions, and plain-argument
 * functions over its big structs. No logic. Each declaration has its twin in lib.rs. */

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_version.h>

/* lib.rs mirrors these fields; the same numbers are asserted there. */
#define AT(type, field, offset) \
	_Static_assert(offsetof(struct type, field) == (offset), #type "." #field " has moved")
AT(rte_mbuf, buf_addr, 0);
AT(rte_mbuf, data_off, 16);
AT(rte_mbuf, refcnt, 18);
AT(rte_mbuf, nb_segs, 20);
AT(rte_mbuf, port, 22);
AT(rte_mbuf, ol_flags, 24);
AT(rte_mbuf, packet_type, 32);
AT(rte_mbuf, pkt_len, 36);
AT(rte_mbuf, data_len, 40);
AT(rte_mbuf, vlan_tci, 42);
AT(rte_mbuf, hash, 44);
AT(rte_mbuf, vlan_tci_outer, 52);
AT(rte_mbuf, buf_len, 54);
AT(rte_mbuf, pool, 56);
AT(rte_mbuf, next, 64);
AT(rte_mbuf, tx_offload, 72);
_Static_assert(sizeof(struct rte_mbuf) == 128, "rte_mbuf has another size");
_Static_assert(RTE_MBUF_L2_LEN_OFS == 0 && RTE_MBUF_L3_LEN_OFS == 7, "tx_offload is laid out differently");
_Static_assert(RTE_PKTMBUF_HEADROOM == 128, "another headroom");
_Static_assert(RTE_MBUF_F_RX_VLAN_STRIPPED == 1ULL << 6, "flag");
_Static_assert(RTE_MBUF_F_RX_QINQ_STRIPPED == 1ULL << 15, "flag");
_Static_assert(RTE_MBUF_F_TX_UDP_CKSUM == 3ULL << 52, "flag");
_Static_assert(RTE_MBUF_F_TX_IP_CKSUM == 1ULL << 54, "flag");
_Static_assert(RTE_MBUF_F_TX_IPV4 == 1ULL << 55, "flag");
_Static_assert(RTE_MBUF_F_TX_IPV6 == 1ULL << 56, "flag");
_Static_assert(RTE_MBUF_F_EXTERNAL == 1ULL << 61, "flag");
_Static_assert(RTE_MBUF_F_INDIRECT == 1ULL << 62, "flag");
_Static_assert(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM == 1ULL << 1, "flag");
_Static_assert(RTE_ETH_TX_OFFLOAD_UDP_CKSUM == 1ULL << 2, "flag");
_Static_assert(RTE_ETH_TX_OFFLOAD_MULTI_SEGS == 1ULL << 15, "flag");
_Static_assert(RTE_ETH_RX_OFFLOAD_SCATTER == 1ULL << 13, "flag");
_Static_assert(sizeof(struct rte_eth_xstat) == 16 && offsetof(struct rte_eth_xstat, value) == 8, "rte_eth_xstat");
_Static_assert(sizeof(struct rte_eth_xstat_name) == 64, "rte_eth_xstat_name");
_Static_assert(sizeof(struct rte_ether_addr) == 6, "rte_ether_addr");

/* Hash fields of layer 3 alone: what spreads clients and keeps one client on one queue. */
#define L3_HASH (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_FRAG_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_OTHER | \
	RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_FRAG_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_OTHER | RTE_ETH_RSS_IPV6_EX)

struct shim_port_info {
	char driver[32];
	char device[64];
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	uint64_t l3_hash;
	uint32_t mtu_max;
	int32_t socket;
	uint16_t rx_queues_max;
	uint16_t tx_queues_max;
	uint16_t mtu;
	uint8_t mac[6];
};
AT(shim_port_info, device, 32);
AT(shim_port_info, rx_offloads, 96);
AT(shim_port_info, l3_hash, 112);
AT(shim_port_info, mtu_max, 120);
AT(shim_port_info, rx_queues_max, 128);
AT(shim_port_info, mac, 134);
_Static_assert(sizeof(struct shim_port_info) == 144, "shim_port_info");

struct shim_port_stats {
	uint64_t ipackets, opackets, ibytes, obytes, imissed, ierrors, oerrors, rx_nombuf;
};
_Static_assert(sizeof(struct shim_port_stats) == 64, "shim_port_stats");

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **bufs, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, bufs, n);
}

uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **bufs, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, bufs, n);
}

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void shim_pktmbuf_free(struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
}

int shim_errno(void)
{
	return rte_errno;
}

unsigned int shim_lcore_id(void)
{
	return rte_lcore_id();
}

int shim_log_to_stderr(void)
{
	return rte_openlog_stream(stderr);
}

int shim_port_configure(uint16_t port, uint16_t queues, uint64_t l3_hash, uint64_t rx_offloads,
			uint64_t tx_offloads, uint32_t mtu)
{
	struct rte_eth_conf conf;

	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = mtu;
	conf.rxmode.offloads = rx_offloads;
	conf.txmode.offloads = tx_offloads;
	if (l3_hash != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = l3_hash;
	}
	return rte_eth_dev_configure(port, queues, queues, &conf);
}

int shim_port_info(uint16_t port, struct shim_port_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	uint16_t mtu = 0;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc != 0)
		return rc;
	memset(out, 0, sizeof(*out));
	snprintf(out->driver, sizeof(out->driver), "%s", info.driver_name ? info.driver_name : "");
	snprintf(out->device, sizeof(out->device), "%s", info.device ? rte_dev_name(info.device) : "");
	out->rx_offloads = info.rx_offload_capa;
	out->tx_offloads = info.tx_offload_capa;
	out->l3_hash = info.flow_type_rss_offloads & L3_HASH;
	out->mtu_max = info.max_mtu;
	out->socket = rte_eth_dev_socket_id(port);
	out->rx_queues_max = info.max_rx_queues;
	out->tx_queues_max = info.max_tx_queues;
	if (rte_eth_dev_get_mtu(port, &mtu) == 0)
		out->mtu = mtu;
	rc = rte_eth_macaddr_get(port, &mac);
	if (rc != 0)
		return rc;
	memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	return 0;
}

int shim_port_stats(uint16_t port, struct shim_port_stats *out)
{
	struct rte_eth_stats stats;
	int rc = rte_eth_stats_get(port, &stats);

	if (rc != 0)
		return rc;
	*out = (struct shim_port_stats){ stats.ipackets, stats.opackets, stats.ibytes, stats.obytes,
					 stats.imissed, stats.ierrors, stats.oerrors, stats.rx_nombuf };
	return 0;
}

int shim_port_link(uint16_t port, uint32_t *speed_mbps, uint8_t *up)
{
	struct rte_eth_link link;
	int rc;

	memset(&link, 0, sizeof(link));
	rc = rte_eth_link_get_nowait(port, &link);
	*speed_mbps = link.link_speed;
	*up = link.link_status;
	return rc;
}

/* The port of the device with this name; -ENODEV if none. */
int shim_port_find(const char *device, uint16_t *port)
{
	struct rte_eth_dev_info info;
	uint16_t id;

	if (rte_eth_dev_get_port_by_name(device, port) == 0)
		return 0;
	RTE_ETH_FOREACH_DEV(id) {
		if (rte_eth_dev_info_get(id, &info) == 0 && info.device != NULL &&
		    strcmp(rte_dev_name(info.device), device) == 0) {
			*port = id;
			return 0;
		}
	}
	return -ENODEV;
}

/* Closes a stopped port and detaches its device. */
int shim_port_remove(uint16_t port)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc != 0)
		return rc;
	rc = rte_eth_dev_close(port);
	if (rc == 0 && info.device != NULL)
		rc = rte_dev_remove(info.device);
	return rc;
}
