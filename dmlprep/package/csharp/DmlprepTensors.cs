// Tensors: what the contract says of them, those of the app, and their element types.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Xml.Linq;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

namespace Dmlprep
{
    /// <summary>One input or output of the contract.</summary>
    public sealed class TensorInfo
    {
        internal TensorInfo(XElement one)
        {
            Name = Json.Text(one, "name");
            Type = Json.Text(one, "type");
            Layout = Json.Text(one, "layout");
            Meaning = Json.TextOrEmpty(one, "meaning");
            XElement picture = Json.Member(one, "picture");
            Colour = picture == null ? "" : Json.TextOrEmpty(picture, "colour");
            XElement range = Json.Member(one, "range");
            if (range != null && range.Elements().Count() == 2)
                Range = range.Elements().Select(Json.Number).ToArray();
            var shape = new List<long>();
            var free = new List<string>();
            foreach (XElement size in Json.Needed(one, "shape").Elements())
            {
                bool known = (string)size.Attribute("type") == "number";
                shape.Add(known ? (long)Json.Number(size) : -1);
                free.Add(known ? "" : size.Value);
            }
            Shape = shape.ToArray();
            FreeNames = free.ToArray();
        }

        /// <summary>Its name.</summary>
        public string Name { get; }

        /// <summary>Element type, by numpy's names: float16, float32, uint8 ...</summary>
        public string Type { get; }

        /// <summary>Sizes; -1 for a dimension that is free.</summary>
        public long[] Shape { get; }

        /// <summary>Name of each free dimension, "" for a fixed one.</summary>
        public string[] FreeNames { get; }

        /// <summary>NCHW, where the contract says it.</summary>
        public string Layout { get; }

        /// <summary>picture, boxes, scores ..., where the contract says it.</summary>
        public string Meaning { get; }

        /// <summary>The channels of a picture: rgb, bgr, rgba, bgra, gray.</summary>
        public string Colour { get; }

        /// <summary>The least and the largest number, where they are known; else null.</summary>
        public double[] Range { get; }
    }

    /// <summary>A tensor on the CPU, row by row without gaps.</summary>
    public sealed class Tensor
    {
        /// <param name="data">An array of one dimension: float[], byte[], long[] ...; float16 as its bits in ushort[].</param>
        /// <param name="shape">Its sizes.</param>
        public Tensor(Array data, params long[] shape)
        {
            Data = data;
            Shape = shape;
        }

        public Array Data { get; }

        public long[] Shape { get; }
    }

    /// <summary>Element types, by numpy's names in the contract.</summary>
    internal static class Types
    {
        internal sealed class Row
        {
            public Row(Type managed, TensorElementType element)
            {
                Managed = managed;
                Element = element;
            }

            public Type Managed { get; }

            public TensorElementType Element { get; }
        }

        private static readonly Dictionary<string, Row> Rows = new Dictionary<string, Row>
        {
            { "float16", new Row(typeof(ushort), TensorElementType.Float16) },
            { "float32", new Row(typeof(float), TensorElementType.Float) },
            { "float64", new Row(typeof(double), TensorElementType.Double) },
            { "int8", new Row(typeof(sbyte), TensorElementType.Int8) },
            { "int16", new Row(typeof(short), TensorElementType.Int16) },
            { "int32", new Row(typeof(int), TensorElementType.Int32) },
            { "int64", new Row(typeof(long), TensorElementType.Int64) },
            { "uint8", new Row(typeof(byte), TensorElementType.UInt8) },
            { "uint16", new Row(typeof(ushort), TensorElementType.UInt16) },
            { "uint32", new Row(typeof(uint), TensorElementType.UInt32) },
            { "uint64", new Row(typeof(ulong), TensorElementType.UInt64) },
            { "bool", new Row(typeof(bool), TensorElementType.Bool) },
        };

        public static Row Of(TensorInfo one)
        {
            Row found;
            if (!Rows.TryGetValue(one.Type, out found))
                throw new ModelException("'" + one.Name + "' is " + one.Type + ", which this loader does not support");
            return found;
        }

        public static Tensor Copied(TensorInfo one, OrtValue value)
        {
            byte[] raw = value.GetTensorMutableRawData().ToArray();
            long[] shape = value.GetTensorTypeAndShape().Shape;
            Array data = Array.CreateInstance(Of(one).Managed, shape.Aggregate(1L, (all, size) => all * size));
            Buffer.BlockCopy(raw, 0, data, 0, raw.Length);
            return new Tensor(data, shape);
        }
    }
}
