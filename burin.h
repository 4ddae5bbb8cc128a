#pragma once

/// All of Burin's public interface.

#include <burin/graph/capture.h>
#include <burin/graph/cuda_graph.h>
#include <burin/graph/executor.h>
#include <burin/graph/timeline.h>
#include <burin/graph/verify.h>
#include <burin/io/idx.h>
#include <burin/io/image.h>
#include <burin/io/npy.h>
#include <burin/io/safetensors.h>
#include <burin/nn/layers.h>
#include <burin/nn/models/resnet.h>
#include <burin/nn/models/sample_cnn.h>
#include <burin/nn/sequential.h>
#include <burin/ops/op_list.h>
#include <burin/runtime/context.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/error.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/adaptors.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/memory/debug_resource.h>
#include <burin/runtime/memory/memory_report.h>
#include <burin/runtime/name_scope.h>
#include <burin/runtime/random.h>
#include <burin/runtime/tensor.h>
