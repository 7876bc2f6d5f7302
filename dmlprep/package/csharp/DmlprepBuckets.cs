// The models of a package, and the choice among those of fixed sizes (buckets).
using System;
using System.Collections.Generic;
using System.Linq;
using System.Xml.Linq;

namespace Dmlprep
{
    /// <summary>Which bucket some sizes take.</summary>
    public sealed class Choice
    {
        internal Choice(Part part, IReadOnlyDictionary<string, long> padding)
        {
            Part = part;
            Padding = padding;
        }

        internal Part Part { get; }

        /// <summary>Name of the bucket; "" for a package without buckets.</summary>
        public string Bucket
        {
            get { return Part.Name; }
        }

        /// <summary>Sizes of the bucket, by dimension.</summary>
        public IReadOnlyDictionary<string, long> Sizes
        {
            get { return Part.Sizes; }
        }

        /// <summary>By dimension, how many elements the app has to add to its inputs; empty where the sizes are the bucket's own.
        /// What they must hold so that they change nothing depends on the model.</summary>
        public IReadOnlyDictionary<string, long> Padding { get; }
    }

    /// <summary>One model of the contract: the whole of a package without buckets, or a bucket.</summary>
    internal sealed class Part
    {
        public Part(XElement one)
        {
            Name = Json.TextOrEmpty(one, "name");
            XElement sizes = Json.Member(one, "sizes");
            if (sizes != null)
            {
                Dimensions = sizes.Elements().Select(Json.Name).ToArray();
                Sizes = sizes.Elements().ToDictionary(Json.Name, size => (long)Json.Number(size));
            }
            XElement model = Json.Needed(one, "model");
            Model = Json.Text(model, "file");
            Data = Json.Needed(model, "data").Elements().Select(file => file.Value).ToArray();
            Inputs = Json.Needed(one, "inputs").Elements().Select(value => new TensorInfo(value)).ToArray();
            Outputs = Json.Needed(one, "outputs").Elements().Select(value => new TensorInfo(value)).ToArray();
            Lowest = Json.Text(Json.Needed(one, "target"), "lowest_onnxruntime");
        }

        public string Name { get; }
        public string[] Dimensions { get; } = new string[0];
        public Dictionary<string, long> Sizes { get; } = new Dictionary<string, long>();
        public string Model { get; }
        public string[] Data { get; }
        public TensorInfo[] Inputs { get; }
        public TensorInfo[] Outputs { get; }
        public string Lowest { get; }

        public double Elements
        {
            get { return Sizes.Values.Aggregate(1.0, (all, size) => all * size); }
        }
    }

    internal static class Buckets
    {
        private static readonly Dictionary<string, long> Nothing = new Dictionary<string, long>();

        /// <summary>The bucket of exactly these sizes; else, of those that are as large in every dimension, that of fewest
        /// elements.</summary>
        public static Choice Choose(Part[] buckets, IDictionary<string, long> sizes)
        {
            Demand(buckets);
            string[] known = buckets[0].Dimensions;
            string strange = sizes.Keys.OrderBy(name => name, StringComparer.Ordinal).FirstOrDefault(name => !known.Contains(name));
            if (strange != null)
                throw new BadInputException("the buckets have no dimension '" + strange + "'; they have: " + string.Join(", ", known));
            string missing = known.FirstOrDefault(name => !sizes.ContainsKey(name));
            if (missing != null)
                throw new BadInputException("the size of '" + missing + "' is missing: the buckets differ in " + string.Join(", ", known));
            string wrong = known.FirstOrDefault(name => sizes[name] < 1);
            if (wrong != null)
                throw new BadInputException("the size of '" + wrong + "' is " + sizes[wrong] + ", but must be a whole number of at least 1");
            Part found = buckets.Where(one => known.All(name => one.Sizes[name] >= sizes[name])).OrderBy(one => one.Elements).FirstOrDefault();
            if (found == null)
                throw new BadInputException("no bucket has room for " + string.Join(", ", known.Select(name => name + "=" + sizes[name]))
                    + "; there are: " + string.Join(", ", buckets.Select(one => one.Name)));
            return new Choice(found, known.Where(name => found.Sizes[name] > sizes[name])
                .ToDictionary(name => name, name => found.Sizes[name] - sizes[name]));
        }

        /// <summary>What these sizes take: the package's only model, or of its buckets the one for those of the sizes that are of
        /// the buckets' dimensions; the first one without any.</summary>
        public static Choice Wanted(Contract contract, IDictionary<string, long> sizes)
        {
            if (contract.Buckets.Length == 0)
                return new Choice(contract.Whole, Nothing);
            Dictionary<string, long> own = sizes.Where(size => contract.Buckets[0].Dimensions.Contains(size.Key))
                .ToDictionary(size => size.Key, size => size.Value);
            return own.Count == 0 ? new Choice(contract.Buckets[0], Nothing) : Choose(contract.Buckets, own);
        }

        public static void Demand(Part[] buckets)
        {
            if (buckets.Length == 0)
                throw new BadInputException("the package has no buckets: its model has the sizes of its contract");
        }
    }
}
