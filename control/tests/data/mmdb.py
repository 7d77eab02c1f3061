#!/usr/bin/env python3
"""Writes the MMDB files beside it: pip install mmdb-writer netaddr; python3 mmdb.py. Kept, so that tests need neither."""

from mmdb_writer import MMDBWriter
from netaddr import IPSet


def write(name, kind, rows):
    writer = MMDBWriter(ip_version=6, ipv4_compatible=True, database_type=kind, languages=["en"],
                        description="written by mmdb.py for tests", int_type="uint32", float_type="f64")
    for prefixes, record in rows:
        writer.insert_network(IPSet(prefixes), record)
    writer.to_db_file(name)


def asn(number, name):
    return {"autonomous_system_number": number, "autonomous_system_organization": name}


write("asn.mmdb", "GeoLite2-ASN", [
    (["1.0.0.0/24"], asn(13335, "CLOUDFLARENET")),
    (["211.32.0.0/16"], asn(3786, "LG DACOM Corporation")),
    (["2001:200::/32"], asn(2500, "WIDE Project")),
])
write("country.mmdb", "GeoLite2-Country", [
    (["11.0.0.0/8"], {"continent": {"code": "AS", "geoname_id": 6255147, "names": {"en": "Asia"}},
                      "country": {"geoname_id": 1819730, "iso_code": "HK", "names": {"en": "Hong Kong"}},
                      "registered_country": {"geoname_id": 6252001, "iso_code": "US"}}),
    (["12.0.0.0/24"], {"continent": {"code": "NA"}, "registered_country": {"iso_code": "US"}}),
    (["13.0.0.0/9"], {"country_code": "KR"}),
    (["14.0.0.0/24"], {"traits": {"is_satellite_provider": True}}),
    (["2001:db8::/48"], {"continent": {"code": "EU", "names": {"en": "Europe"}}}),
])
write("city.mmdb", "GeoLite2-City", [
    (["11.2.0.0/20"], {"city": {"names": {"en": "Seoul"}}, "continent": {"code": "AS"},
                       "country": {"iso_code": "KR"},
                       "location": {"accuracy_radius": 100, "latitude": 37.57, "longitude": 126.98,
                                    "time_zone": "Asia/Seoul"},
                       "subdivisions": [{"iso_code": "11", "names": {"en": "Seoul"}}]}),
    (["2001:db8:1::/48"], {"location": {"latitude": -51.5, "longitude": -59.9999}}),
])
