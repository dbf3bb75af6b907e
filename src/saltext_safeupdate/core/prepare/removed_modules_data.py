"""
The files of each Salt series for its loaders, and the names that vanish with them.

Written by ``devtools.removed_modules.py``; the unit tests compare it with each series.
"""

SERIES = ("3006", "3007", "3008")

# The files of each loader, by the first and the last series that has them.
FILES = {
    "beacons": {
        "3006-3007": """
            adb aix_account avahi_announce bonjour_announce btmp glxinfo haproxy junos_rre_keys
            napalm_beacon sensehat smartos_imgadm smartos_vmadm telegram_bot_msg twilio_txt_msg
            wtmp
        """,
        "3006-3008": """
            cert_info diskusage inotify journald load log_beacon memusage network_info
            network_settings pkg proxy_example ps salt_monitor salt_proxy service sh status
            swapusage watchdog
        """,
    },
    "engines": {
        "3006-3007": """
            docker_events fluent http_logstash ircbot junos_syslog libvirt_events logentries
            logstash_engine napalm_syslog redis_sentinel slack slack_bolt_engine sqs_events
            stalekey
        """,
        "3006-3008": """
            reactor script test thorium webhook
        """,
    },
    "executors": {
        "3006-3008": """
            direct_call splay sudo
        """,
        "3006-3007": """
            docker transactional_update
        """,
    },
    "modules": {
        "3006-3007": """
            acme apcups apkpkg aptly augeas_cfg aws_sqs bamboohr bigip bluez_bluetooth
            boto3_elasticache boto3_elasticsearch boto3_route53 boto3_sns boto_apigateway
            boto_asg boto_cfn boto_cloudfront boto_cloudtrail boto_cloudwatch
            boto_cloudwatch_event boto_cognitoidentity boto_datapipeline boto_dynamodb boto_ec2
            boto_efs boto_elasticache boto_elasticsearch_domain boto_elb boto_elbv2 boto_iam
            boto_iot boto_kinesis boto_kms boto_lambda boto_rds boto_route53 boto_s3
            boto_s3_bucket boto_secgroup boto_sns boto_sqs boto_ssm boto_vpc bower bsd_shadow
            btrfs cabal capirca_acl ceph chassis cimc ciscoconfparse_mod cisconso composer
            consul container_resource cpan csf cyg daemontools datadog_api ddns deb_apache
            deb_postgres djangomod dnsmasq dockercompose dockermod drac dracr drbd ebuildpkg eix
            elasticsearch eselect esxcluster esxdatacenter esxi esxvm freebsd_sysctl
            freebsd_update freebsdjail freebsdkmod freebsdpkg freebsdports freebsdservice
            freezer gcp_addon gem genesis gentoo_service gentoolkitmod github glanceng glassfish
            glusterfs gnomedesktop google_chat grafana4 grub_legacy guestfs hadoop haproxyconn
            heat helm hg icinga2 ifttt ilo influxdb08mod influxdbmod infoblox inspectlib
            inspector introspect ipmi jboss7 jboss7_cli jenkinsmod jira_mod k8s kapacitor
            kerberos keystone keystoneng keystore kubeadm kubernetesmod launchctl_service layman
            ldap3 ldapmod libcloud_compute libcloud_dns libcloud_loadbalancer libcloud_storage
            logadm lvs lxc lxd makeconf mandrill marathon mattermost mdata memcached modjk
            mongodb monit moosefs mssql msteams munin nagios nagios_rpc namecheap_domains
            namecheap_domains_dns namecheap_domains_ns namecheap_ssl namecheap_users netbox
            netbsd_sysctl netbsdservice netmiko_mod netscaler neutron neutronng nexus nginx
            nilrt_ip nix nova nspawn omapi openbsd_sysctl openbsdpkg openbsdrcctl_service
            openbsdservice openscap openstack_config openstack_mng openvswitch opkg opsgenie
            pagerduty pagerduty_util panos parallels pcs pdbedit pecl peeringdb pf philips_hue
            portage_config postfix poudriere powerpath purefa purefb pushbullet pushover_notify
            qemu_img qemu_nbd rallydev random_org rbenv rebootmgr redismod restconf riak runit
            rvm s3 s6 sensehat sensors serverdensity_device servicenow slackware_service
            smartos_imgadm smartos_nictagadm smartos_virt smartos_vmadm smtp solr solrcloud
            splunk splunk_search statuspage suse_apache suse_ip svn swarm swift sysbench sysrc
            system_profiler telegram telemetry testinframod tomcat trafficserver
            transactional_update travisci tuned twilio_notify uptime uwsgi varnish vault
            vbox_guest vboxmanage vcenter victorops virt vmctl wordpress xapi_virt xbpspkg xmpp
            zabbix zcbuildout zenoss zfs znc zookeeper zpool
        """,
        "3006-3008": """
            aix_group aix_shadow aixpkg aliases alternatives ansiblegate apache apf aptpkg
            archive arista_pyeapi artifactory at at_solaris baredoc bcache beacons bridge
            cassandra_cql celery chef chocolatey chronos chroot cloud cmdmod config cp cron
            cryptdev data debconfmod debian_ip debian_service debuild_pkgbuild defaults devinfo
            devmap dig disk dnsutil dpkg_lowpkg dummyproxy_pkg dummyproxy_service environ
            etcd_mod ethtool event extfs file firewalld git gpg grains groupadd hashutil
            highstate_doc hosts http idem incron ini_manage iosconfig ipset iptables iwtools
            jinja junos kernelpkg_linux_apt kernelpkg_linux_yum key keyboard kmod linux_acl
            linux_ip linux_lvm linux_service linux_shadow linux_sysctl localemod locate logmod
            logrotate mac_assistive mac_brew_pkg mac_desktop mac_group mac_keychain mac_pkgutil
            mac_portspkg mac_power mac_service mac_shadow mac_softwareupdate mac_sysctl
            mac_system mac_timezone mac_user mac_xattr macdefaults macpackage match mdadm_raid
            mine minion mod_random mount mysql nacl napalm_bgp napalm_formula napalm_mod
            napalm_netacl napalm_network napalm_ntp napalm_probes napalm_route napalm_snmp
            napalm_users napalm_yang_mod netaddress netplan_ip network nfs3 nftables nm_ip npm
            nxos nxos_api nxos_upgrade oracle osquery out pacmanpkg pam parted_partition pillar
            pip pkg_resource pkgin pkgng pkgutil postgres proxy ps publish puppet pw_group
            pw_user pyenv quota rabbitmq rbac_solaris rdp reg rest_pkg rest_sample_utils
            rest_service restartcheck ret rh_ip rh_service rpm_lowpkg rpmbuild_pkgbuild rsync
            salt_proxy salt_version saltcheck saltcloudmod saltutil schedule scp_mod scsi sdb
            seed selinux slack_notify slsutil smbios smf_service snapper solaris_fmadm
            solaris_group solaris_shadow solaris_system solaris_user solarisipspkg solarispkg
            sqlite3 ssh ssh_pkg ssh_service state status supervisord sysfs syslog_ng sysmod
            system systemd_service temp test test_virtual textfsm_mod timezone tls udev
            upstart_service useradd vagrant virtualenv_mod vsphere webutil win_auditpol
            win_autoruns win_certutil win_dacl win_disk win_dism win_dns_client win_dsc
            win_event win_file win_firewall win_groupadd win_iis win_ip win_lgpo win_lgpo_reg
            win_license win_network win_ntp win_path win_pkg win_pki win_powercfg win_psget
            win_servermanager win_service win_shadow win_shortcut win_smtp_server win_snmp
            win_status win_system win_task win_timezone win_useradd win_wua win_wusa winrepo
            x509 x509_v2 xfs xml yaml yumpkg zk_concurrency zoneadm zonecfg zypperpkg
        """,
        "3008-3008": """
            asymmetric nixpkg ssh_pki win_dsc_resource
        """,
        "3006-3006": """
            azurearm_compute azurearm_dns azurearm_network azurearm_resource
        """,
        "3007-3008": """
            win_appx
        """,
    },
    "renderers": {
        "3006-3007": """
            aws_kms cheetah dson genshi hjson json5 pass pydsl wempy
        """,
        "3006-3008": """
            gpg jinja json mako msgpack nacl py pyobjects stateconf tomlmod yaml yamlex
        """,
    },
    "returners": {
        "3006-3007": """
            appoptics_return carbon_return cassandra_cql_return couchbase_return couchdb_return
            elasticsearch_return etcd_return influxdb_return kafka_return librato_return
            mattermost_returner memcache_return mongo_future_return mongo_return mysql
            nagios_nrdp_return odbc pushover_returner redis_return sentry_return slack_returner
            slack_webhook_return sms_return smtp_return splunk sqlite3_return telegram_return
            xmpp_return zabbix_return
        """,
        "3006-3008": """
            highstate_return local local_cache multi_returner pgjsonb postgres
            postgres_local_cache rawfile_json syslog_return
        """,
        "3008-3008": """
            salt_cache
        """,
    },
    "sdb": {
        "3006-3007": """
            cache confidant consul couchdb etcd_db keyring_db memcached redis_sdb rest sqlite3
            tism vault
        """,
        "3006-3008": """
            env yaml
        """,
    },
    "states": {
        "3006-3007": """
            acme alternatives aptpkg artifactory augeas aws_sqs bigip boto3_elasticache
            boto3_elasticsearch boto3_route53 boto3_sns boto_apigateway boto_asg boto_cfn
            boto_cloudfront boto_cloudtrail boto_cloudwatch_alarm boto_cloudwatch_event
            boto_cognitoidentity boto_datapipeline boto_dynamodb boto_ec2 boto_elasticache
            boto_elasticsearch_domain boto_elb boto_elbv2 boto_iam boto_iam_role boto_iot
            boto_kinesis boto_kms boto_lambda boto_lc boto_rds boto_route53 boto_s3
            boto_s3_bucket boto_secgroup boto_sns boto_sqs boto_vpc bower btrfs cabal ceph chef
            chronos_job cimc cisconso composer consul cryptdev csf cyg ddns dellchassis
            docker_container docker_image docker_network docker_volume drac dvs elasticsearch
            elasticsearch_index elasticsearch_index_template eselect esxcluster esxdatacenter
            esxi esxvm ethtool gem github glance_image glassfish glusterfs gnomedesktop grafana
            grafana4_dashboard grafana4_datasource grafana4_org grafana4_user grafana_dashboard
            grafana_datasource heat helm hg icinga2 ifttt incron influxdb08_database
            influxdb08_user influxdb_continuous_query influxdb_database
            influxdb_retention_policy influxdb_user infoblox_a infoblox_cname
            infoblox_host_record infoblox_range ipmi jboss7 jenkins junos kapacitor kernelpkg
            keystone keystone_domain keystone_endpoint keystone_group keystone_project
            keystone_role keystone_role_grant keystone_service keystone_user keystore kubernetes
            layman ldap libcloud_dns libcloud_loadbalancer libcloud_storage logadm lvs_server
            lvs_service lxc lxd lxd_container lxd_image lxd_profile marathon_app memcached modjk
            modjk_worker mongodb_database mongodb_user monit mssql_database mssql_login
            mssql_role mssql_user msteams mysql_database mysql_grants mysql_query mysql_user
            net_napalm_yang neutron_network neutron_secgroup neutron_secgroup_rule
            neutron_subnet nexus nfs_export npm nxos nxos_upgrade openstack_config
            openvswitch_bridge openvswitch_db openvswitch_port opsgenie pagerduty
            pagerduty_escalation_policy pagerduty_schedule pagerduty_service pagerduty_user
            panos pbm pcs pdbedit pecl portage_config ports powerpath probes pushover
            pyrax_queues rbac_solaris rbenv rdp redismod restconf rsync rvm serverdensity_device
            slack smartos smtp snapper solrcloud splunk splunk_search sqlite3 statuspage
            supervisord svn sysrc telemetry_alert testinframod tomcat trafficserver tuned
            vagrant vault vbox_guest victorops virt webutil wordpress xml xmpp zabbix_action
            zabbix_host zabbix_hostgroup zabbix_mediatype zabbix_template zabbix_user
            zabbix_usergroup zabbix_usermacro zabbix_valuemap zcbuildout zenoss zfs
            zk_concurrency zone zookeeper zpool
        """,
        "3006-3008": """
            alias ansiblegate apache apache_conf apache_module apache_site archive at beacon
            blockdev chocolatey cloud cmd cron debconfmod disk environ etcd_mod event file
            firewall firewalld git gpg grains group highstate_doc host http idem ini_manage
            ipset iptables keyboard kmod linux_acl locale logrotate loop lvm mac_assistive
            mac_keychain mac_xattr macdefaults macpackage makeconf mdadm_raid module mount
            netacl netconfig netntp netsnmp netusers network nftables ntp pip_state pkg pkgbuild
            pkgng pkgrepo postgres_cluster postgres_database postgres_extension postgres_group
            postgres_initdb postgres_language postgres_privileges postgres_schema
            postgres_tablespace postgres_user process proxy pyenv quota rabbitmq_cluster
            rabbitmq_plugin rabbitmq_policy rabbitmq_upstream rabbitmq_user rabbitmq_vhost reg
            salt_proxy saltmod saltutil schedule selinux service ssh_auth ssh_known_hosts
            stateconf status sysctl sysfs syslog_ng test timezone tls uptime user virtualenv_mod
            win_certutil win_dacl win_dism win_dns_client win_firewall win_iis win_lgpo
            win_lgpo_reg win_license win_network win_path win_pki win_powercfg win_servermanager
            win_shortcut win_smtp_server win_snmp win_system win_wua win_wusa winrepo x509
            x509_v2
        """,
        "3006-3006": """
            azurearm_compute azurearm_dns azurearm_network azurearm_resource
        """,
        "3008-3008": """
            ssh_pki win_dsc_resource
        """,
        "3007-3008": """
            win_appx win_task
        """,
    },
}

# Names that vanish with a removed file, if it is not just the name of the file.
NAMES = {
    "beacons": {
        "napalm_beacon": "napalm",
        "smartos_imgadm": "imgadm",
        "smartos_vmadm": "vmadm",
    },
    "engines": {
        "logstash_engine": "logstash",
        "redis_sentinel": "redis",
        "slack_bolt_engine": "slack_bolt",
    },
    "modules": {
        "apkpkg": "",
        "augeas_cfg": "augeas",
        "bluez_bluetooth": "bluetooth",
        "bsd_shadow": "",
        "capirca_acl": "capirca",
        "ciscoconfparse_mod": "ciscoconfparse",
        "datadog_api": "datadog",
        "deb_apache": "",
        "deb_postgres": "",
        "djangomod": "django",
        "dockermod": "docker",
        "ebuildpkg": "",
        "freebsd_sysctl": "",
        "freebsdjail": "jail",
        "freebsdkmod": "",
        "freebsdpkg": "",
        "freebsdports": "ports",
        "freebsdservice": "",
        "gcp_addon": "gcp",
        "gentoo_service": "",
        "gentoolkitmod": "gentoolkit",
        "gnomedesktop": "gnome",
        "grub_legacy": "grub",
        "haproxyconn": "haproxy",
        "influxdb08mod": "influxdb08",
        "influxdbmod": "influxdb",
        "jenkinsmod": "jenkins",
        "jira_mod": "jira",
        "kubernetesmod": "kubernetes",
        "launchctl_service": "",
        "ldapmod": "ldap",
        "netbsd_sysctl": "",
        "netbsdservice": "",
        "netmiko_mod": "netmiko",
        "nilrt_ip": "",
        "openbsd_sysctl": "",
        "openbsdpkg": "",
        "openbsdrcctl_service": "",
        "openbsdservice": "",
        "opkg": "",
        "philips_hue": "hue",
        "pushover_notify": "pushover",
        "redismod": "redis",
        "slackware_service": "",
        "smartos_imgadm": "imgadm",
        "smartos_nictagadm": "nictagadm",
        "smartos_virt": "virt",
        "smartos_vmadm": "vmadm",
        "suse_apache": "",
        "suse_ip": "",
        "testinframod": "testinfra",
        "twilio_notify": "twilio",
        "xapi_virt": "virt",
        "xbpspkg": "",
        "zcbuildout": "buildout",
    },
    "returners": {
        "appoptics_return": "appoptics",
        "carbon_return": "carbon",
        "cassandra_cql_return": "cassandra_cql",
        "couchbase_return": "couchbase",
        "couchdb_return": "couchdb",
        "elasticsearch_return": "elasticsearch",
        "etcd_return": "etcd",
        "influxdb_return": "influxdb",
        "kafka_return": "kafka",
        "librato_return": "librato",
        "mattermost_returner": "mattermost",
        "memcache_return": "memcache",
        "mongo_future_return": "mongo",
        "mongo_return": "mongo mongo_return",
        "nagios_nrdp_return": "nagios_nrdp",
        "pushover_returner": "pushover",
        "redis_return": "redis",
        "sentry_return": "sentry",
        "slack_returner": "slack",
        "slack_webhook_return": "slack_webhook",
        "sms_return": "sms",
        "smtp_return": "smtp",
        "sqlite3_return": "sqlite3",
        "telegram_return": "telegram",
        "xmpp_return": "xmpp",
        "zabbix_return": "zabbix",
    },
    "sdb": {
        "etcd_db": "etcd",
        "keyring_db": "keyring",
        "redis_sdb": "redis",
    },
    "states": {
        "aptpkg": "apt",
        "net_napalm_yang": "napalm_yang",
        "nxos_upgrade": "nxos",
        "rbac_solaris": "rbac",
        "redismod": "redis",
        "testinframod": "testinfra",
        "zcbuildout": "buildout",
    },
}
