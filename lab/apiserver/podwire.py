"""Protobuf field numbers of pods and of rarer kinds.

From generated.proto of k8s.io/api, in the order of the numbers; `name=N` if a number is not the next one, `+Type` for a
struct that Go embeds: a separate message in the encoding, but not a separate level in JSON.
"""

from __future__ import annotations

_TERMS = "requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution"
_NAMED = "+core.v1.LocalObjectReference"

CORE = {
    "Affinity": "nodeAffinity podAffinity podAntiAffinity",
    "NodeAffinity": _TERMS,
    "PodAffinity": _TERMS,
    "PodAntiAffinity": _TERMS,
    "PreferredSchedulingTerm": "weight preference",
    "NodeSelector": "nodeSelectorTerms",
    "NodeSelectorTerm": "matchExpressions matchFields",
    "NodeSelectorRequirement": "key operator values",
    "WeightedPodAffinityTerm": "weight podAffinityTerm",
    "PodAffinityTerm": "labelSelector namespaces topologyKey namespaceSelector matchLabelKeys mismatchLabelKeys",
    "TopologySpreadConstraint": "maxSkew topologyKey whenUnsatisfiable labelSelector minDomains nodeAffinityPolicy "
    "nodeTaintsPolicy matchLabelKeys",
    "PodDNSConfig": "nameservers searches options",
    "PodDNSConfigOption": "name value",
    "HostAlias": "ip hostnames",
    "PodOS": "name",
    "PodReadinessGate": "conditionType",
    "PodSchedulingGate": "name",
    "PodResourceClaim": "name resourceClaimName=3 resourceClaimTemplateName",
    "ResourceClaim": "name request",
    "PodSecurityContext": "seLinuxOptions runAsUser runAsNonRoot supplementalGroups fsGroup runAsGroup sysctls "
    "windowsOptions fsGroupChangePolicy seccompProfile appArmorProfile supplementalGroupsPolicy seLinuxChangePolicy",
    "SecurityContext": "capabilities privileged seLinuxOptions runAsUser runAsNonRoot readOnlyRootFilesystem "
    "allowPrivilegeEscalation runAsGroup procMount windowsOptions seccompProfile appArmorProfile",
    "Capabilities": "add drop",
    "SELinuxOptions": "user role type level",
    "SeccompProfile": "type localhostProfile",
    "AppArmorProfile": "type localhostProfile",
    "Sysctl": "name value",
    "ContainerResizePolicy": "resourceName restartPolicy",
    "VolumeDevice": "name devicePath",
    "EnvFromSource": "prefix configMapRef secretRef",
    "ConfigMapEnvSource": f"{_NAMED} optional",
    "SecretEnvSource": f"{_NAMED} optional",
    "EnvVarSource": "fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef",
    "ConfigMapKeySelector": f"{_NAMED} key optional",
    "SecretKeySelector": f"{_NAMED} key optional",
    "ObjectFieldSelector": "apiVersion fieldPath",
    "ResourceFieldSelector": "containerName resource divisor",
    "Lifecycle": "postStart preStop stopSignal",
    "LifecycleHandler": "exec httpGet tcpSocket sleep",
    "Probe": "+core.v1.ProbeHandler initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold "
    "terminationGracePeriodSeconds",
    "ProbeHandler": "exec httpGet tcpSocket grpc",
    "ExecAction": "command",
    "HTTPGetAction": "path port host scheme httpHeaders",
    "HTTPHeader": "name value",
    "TCPSocketAction": "port host",
    "GRPCAction": "port service",
    "SleepAction": "seconds",
    "Volume": "name +core.v1.VolumeSource",
    "VolumeSource": "hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs "
    "persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume "
    "quobyte azureDisk photonPersistentDisk portworxVolume scaleIO projected storageos csi ephemeral image",
    "HostPathVolumeSource": "path type",
    "EmptyDirVolumeSource": "medium sizeLimit",
    "SecretVolumeSource": "secretName items defaultMode optional",
    "ConfigMapVolumeSource": f"{_NAMED} items defaultMode optional",
    "NFSVolumeSource": "server path readOnly",
    "PersistentVolumeClaimVolumeSource": "claimName readOnly",
    "DownwardAPIVolumeSource": "items defaultMode",
    "DownwardAPIVolumeFile": "path fieldRef resourceFieldRef mode",
    "CSIVolumeSource": "driver readOnly fsType volumeAttributes nodePublishSecretRef",
    "EphemeralVolumeSource": "volumeClaimTemplate",
    "ImageVolumeSource": "reference pullPolicy",
    "ProjectedVolumeSource": "sources defaultMode",
    "VolumeProjection": "secret downwardAPI configMap serviceAccountToken clusterTrustBundle podCertificate",
    "SecretProjection": f"{_NAMED} items optional=4",
    "ConfigMapProjection": f"{_NAMED} items optional=4",
    "DownwardAPIProjection": "items",
    "ServiceAccountTokenProjection": "audience expirationSeconds path",
    "KeyToPath": "key path mode",
    "PersistentVolumeClaim": "metadata spec status",
    "PersistentVolumeClaimTemplate": "metadata spec",
    "PersistentVolumeClaimSpec": "accessModes resources volumeName selector storageClassName volumeMode dataSource "
    "dataSourceRef volumeAttributesClassName",
    "VolumeResourceRequirements": "limits requests",
    "TypedLocalObjectReference": "apiGroup kind name",
    "TypedObjectReference": "apiGroup kind name namespace",
    "ScopeSelector": "matchExpressions",
    "ScopedResourceSelectorRequirement": "scopeName operator values",
}

NUMBERS = {
    **{f"core.v1.{name}": fields for name, fields in CORE.items()},
    "batch.v1.PodFailurePolicy": "rules",
    "batch.v1.PodFailurePolicyRule": "action onExitCodes onPodConditions",
    "batch.v1.PodFailurePolicyOnExitCodesRequirement": "containerName operator values",
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": "type status",
    "batch.v1.SuccessPolicy": "rules",
    "batch.v1.SuccessPolicyRule": "succeededIndexes succeededCount",
    "autoscaling.v1.HorizontalPodAutoscaler": "metadata spec status",
    "autoscaling.v1.HorizontalPodAutoscalerSpec": "scaleTargetRef minReplicas maxReplicas "
    "targetCPUUtilizationPercentage",
    "autoscaling.v1.CrossVersionObjectReference": "kind name apiVersion",
    "autoscaling.v2.HorizontalPodAutoscaler": "metadata spec status",
    "autoscaling.v2.HorizontalPodAutoscalerSpec": "scaleTargetRef minReplicas maxReplicas metrics behavior",
    "autoscaling.v2.CrossVersionObjectReference": "kind name apiVersion",
    "autoscaling.v2.MetricSpec": "type object pods resource external containerResource",
    "autoscaling.v2.ResourceMetricSource": "name target",
    "autoscaling.v2.MetricTarget": "type value averageValue averageUtilization",
    "networking.v1.Ingress": "metadata spec status",
    "networking.v1.IngressSpec": "defaultBackend tls rules ingressClassName",
    "networking.v1.IngressBackend": "resource=3 service",
    "networking.v1.IngressServiceBackend": "name port",
    "networking.v1.ServiceBackendPort": "name number",
    "networking.v1.IngressTLS": "hosts secretName",
    "networking.v1.IngressRule": "host +networking.v1.IngressRuleValue",
    "networking.v1.IngressRuleValue": "http",
    "networking.v1.HTTPIngressRuleValue": "paths",
    "networking.v1.HTTPIngressPath": "path backend pathType",
}
